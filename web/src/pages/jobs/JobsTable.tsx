// Only the rows in sight are in the page; those that come into sight are read as needed.
import { useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import type { Schemas } from "../../api/client";
import { useProgress } from "../../live/useProgress";
import { columns, features, NUMBERS, UNSORTED } from "./columns";

type Job = Schemas["Job"];

interface Props {
  jobs: Job[];
  sort: string;
  chosen: ReadonlySet<string>;
  onChoose: (chosen: ReadonlySet<string>) => void;
  onSort: (column: string) => void;
  onEnd: () => void;
}

const ROW = 34;
const NEAR_END = 40;

export function JobsTable({ jobs, sort, chosen, onChoose, onSort, onEnd }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const table = useTable({ features, columns, data: jobs, getRowId: (job) => job.id });
  const rows = table.getRowModel().rows;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => place.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= rows.length - NEAR_END) onEnd();
  }, [last, rows.length, onEnd]);
  useProgress(shown.flatMap((item) => (jobs[item.index]?.state === "running" ? [jobs[item.index]?.id ?? ""] : [])));
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const isAll = jobs.length > 0 && jobs.every((job) => chosen.has(job.id));
  return (
    <div className="jobs" ref={place} tabIndex={0} role="region" aria-label="Table of jobs">
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th className="pick">
              <input
                type="checkbox"
                aria-label="Choose all that are loaded"
                checked={isAll}
                onChange={() => onChoose(isAll ? new Set() : new Set(jobs.map((job) => job.id)))}
              />
            </th>
            {table.getFlatHeaders().map((header) => (
              <th
                key={header.id}
                className={NUMBERS.has(header.id) ? "number" : undefined}
                data-column={header.id}
                aria-sort={sortOf(sort, header.id)}
              >
                {UNSORTED.has(header.id) ? (
                  <table.FlexRender header={header} />
                ) : (
                  <button onClick={() => onSort(header.id)}>
                    <table.FlexRender header={header} />
                  </button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody style={{ height: virtual.getTotalSize() }}>
          {shown.map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <tr
                key={row.id}
                aria-rowindex={item.index + 2}
                aria-selected={chosen.has(row.id)}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <td className="pick">
                  <input
                    type="checkbox"
                    aria-label={`Choose job ${row.id}`}
                    checked={chosen.has(row.id)}
                    onChange={() => toggle(row.id)}
                  />
                </td>
                {row.getAllCells().map((cell) => (
                  <td
                    key={cell.id}
                    className={NUMBERS.has(cell.column.id) ? "number" : undefined}
                    data-column={cell.column.id}
                  >
                    <table.FlexRender cell={cell} />
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

function sortOf(sort: string, column: string): "ascending" | "descending" | undefined {
  if (sort === column) return "ascending";
  return sort === `-${column}` ? "descending" : undefined;
}
