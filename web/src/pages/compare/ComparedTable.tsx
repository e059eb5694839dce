import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

import { useNow } from "../../ui/now";
import { StateMark } from "../../ui/parts";
import { duration, measured } from "../../units";
import type { Column, Compared } from "./table";

interface Props {
  jobs: readonly Compared[];
  columns: readonly Column[];
  sort: string;
  best: ReadonlySet<string>;
  drawn: readonly string[];
  onSort: (column: string) => void;
  onDraw: (id: string) => void;
}

const ROW = 34;

/** Only the rows in sight are in the page: a sweep may have thousands. */
export function ComparedTable({ jobs, columns, sort, best, drawn, onSort, onDraw }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const now_s = useNow();
  const virtual = useVirtualizer({
    count: jobs.length,
    getScrollElement: () => place.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  const grid = { gridTemplateColumns: `46px minmax(200px, 2fr) 120px ${"minmax(96px, 1fr) ".repeat(columns.length - 2)}` };
  const width = { minWidth: 368 + 96 * (columns.length - 2) };
  return (
    <div className="compared" ref={place} tabIndex={0} role="region" aria-label="Jobs side by side">
      <table aria-rowcount={jobs.length + 1} style={width}>
        <thead>
          <tr style={grid} aria-rowindex={1}>
            <th className="pick">
              <span className="unseen">Curves</span>
            </th>
            {columns.map((column) => (
              <th key={column.id} data-kind={column.kind} aria-sort={sortOf(sort, column.id)} title={column.title}>
                <button onClick={() => onSort(column.id)}>{column.title}</button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const job = jobs[item.index];
            if (!job) return null;
            const colour = drawn.indexOf(job.id);
            return (
              <tr
                key={job.id}
                aria-rowindex={item.index + 2}
                data-best={best.has(job.id) || undefined}
                style={{ ...grid, transform: `translateY(${item.start}px)` }}
              >
                <td className="pick">
                  <input
                    type="checkbox"
                    aria-label={`Draw job ${job.id}`}
                    checked={colour >= 0}
                    onChange={() => onDraw(job.id)}
                  />
                </td>
                {columns.map((column) => (
                  <td key={column.id} data-column={column.id}>
                    {column.id === "job" ? (
                      <>
                        <span className={colour >= 0 ? `key f${colour % 8}` : "key"} />{" "}
                        <Link to="/jobs/$id" params={{ id: job.id }} title={job.name}>
                          <span className="quiet">{job.id}</span> {job.name}
                        </Link>
                        {best.has(job.id) ? <b className="tag best">best</b> : null}
                      </>
                    ) : (
                      <Shown column={column} job={job} now_s={now_s} />
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Shown({ column, job, now_s }: { column: Column; job: Compared; now_s: number }) {
  if (column.id === "state") return <StateMark state={job.state} />;
  const value = column.of(job, now_s);
  if (column.id === "ran") return <>{duration(value as number)}</>;
  if (value === null) return <span className="quiet">–</span>;
  const text = typeof value === "number" && column.kind === "value" ? measured(value) : String(value);
  return <span title={String(value)}>{text}</span>;
}

function sortOf(sort: string, column: string): "ascending" | "descending" | undefined {
  if (sort === column) return "ascending";
  return sort === `-${column}` ? "descending" : undefined;
}
