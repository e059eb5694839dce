import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { since, usageQuery } from "../../api/queries";
import { Choice } from "../../ui/Choice";
import { Card, Empty, Meter, Problem, Room } from "../../ui/parts";
import { amount, gpuHours } from "../../units";

const SPANS = [
  ["86400", "24 h"],
  ["604800", "7 d"],
  ["2592000", "30 d"],
] as const;
const NONE: never[] = [];
type Span = (typeof SPANS)[number][0];

/** GPU-hours by user, and the same as a file. */
export function UsageCard({ vcs }: { vcs: string[] }) {
  const [vc, setVc] = useState("");
  const [span, setSpan] = useState<Span>("604800");
  const { data = NONE, error, isPending } = useQuery(usageQuery(vc, Number(span)));
  const most = Math.max(0, ...data.map((row) => row.gpu_hours));
  const file = `/api/v1/usage?${new URLSearchParams({ by: "user", format: "csv", vc, since: String(since(Number(span))) })}`;
  const aside = (
    <div className="row">
      <label className="row">
        <span className="quiet">VC</span>
        <select value={vc} onChange={(event) => setVc(event.target.value)}>
          <option value="">all</option>
          {vcs.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <Choice label="How far back" value={span} choices={SPANS} onChange={setSpan} />
      <a className="button" href={file} download={`usage-${vc || "all"}.csv`}>
        CSV
      </a>
    </div>
  );
  return (
    <Card title="Usage by user" aside={aside}>
      {error ? <Problem error={error} /> : null}
      {data.length ? (
        <table className="usage">
          <thead>
            <tr>
              <th>User</th>
              <th className="number">Jobs</th>
              <th className="number">GPU-hours</th>
              <th />
            </tr>
          </thead>
          <tbody>
            {data.map((row) => (
              <tr key={row.user}>
                <th scope="row">{row.user || "–"}</th>
                <td className="number">{amount(row.jobs)}</td>
                <td className="number">{gpuHours(row.gpu_hours)}</td>
                <td>
                  <Meter share={most ? row.gpu_hours / most : 0} label={`${amount(row.gpu_hours)} GPU-hours`} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : isPending ? (
        <Room rows={4} />
      ) : (
        <Empty>No GPU was used in this time.</Empty>
      )}
    </Card>
  );
}
