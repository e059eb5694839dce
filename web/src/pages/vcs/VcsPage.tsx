// Who was promised how much, who has how much, and who used it.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { historyQuery, vcsQuery } from "../../api/queries";
import { seriesColour } from "../../draw/palette";
import { Chart, type Line } from "../../ui/Chart";
import { Choice } from "../../ui/Choice";
import { Card, Empty, Problem, Room } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { amount, counted, duration } from "../../units";
import { RANGES, type Range } from "../overview/TimelineCard";
import { UsageCard } from "./UsageCard";

type Vc = Schemas["Vc"];

export default function VcsPage() {
  useTitle("Virtual clusters");
  const { data: vcs, error } = useQuery(vcsQuery);
  const borrowed = vcs?.reduce((sum, vc) => sum + vc.borrowed, 0) ?? 0;
  return (
    <>
      <h1>Virtual clusters</h1>
      <p className="verdict">
        {vcs ? (
          <>
            <strong>{counted(vcs.length, "virtual cluster")}</strong>
            {borrowed ? (
              <>; {amount(borrowed)} GPUs are borrowed beyond what was guaranteed.</>
            ) : (
              <>; no GPUs are borrowed.</>
            )}
          </>
        ) : (
          "…"
        )}
      </p>
      {error && !vcs ? <Problem error={error} /> : null}
      {vcs?.length === 0 ? <Empty>There are none.</Empty> : null}
      {vcs?.length ? (
        <>
          <Shares vcs={vcs} />
          <OverTime />
          <UsageCard vcs={vcs.map((vc) => vc.name)} />
        </>
      ) : null}
    </>
  );
}

function Shares({ vcs }: { vcs: Vc[] }) {
  const most = Math.max(1, ...vcs.map((vc) => Math.max(vc.gpus, vc.used + vc.borrowed)));
  return (
    <Card
      title="Now"
      note="Of what is guaranteed: full colour is used, hatched is lent to others (whose idle GPUs these are is open until one wants its own back, so they are divided among all), grey is idle. Lighter colour behind it is borrowed."
    >
      <div className="scroll" tabIndex={0} role="region" aria-label="Virtual clusters now">
        <table>
          <thead>
            <tr>
              <th>VC</th>
              <th className="bars-column">GPUs</th>
              <th className="number">Guaranteed</th>
              <th className="number">Used</th>
              <th className="number">Lent</th>
              <th className="number">Borrowed</th>
              <th className="number">Running</th>
              <th className="number">Waiting</th>
              <th>Policy</th>
            </tr>
          </thead>
          <tbody>
            {vcs.map((vc, index) => (
              <tr key={vc.name}>
                <th scope="row">
                  <span className={`key f${index % 8}`} />{" "}
                  <Link to="/jobs" search={{ vc: vc.name }}>
                    {vc.name}
                  </Link>
                </th>
                <td className="bars-column">
                  <Bars vc={vc} most={most} colour={index % 8} />
                </td>
                <td className="number">{amount(vc.gpus)}</td>
                <td className="number">{amount(vc.used)}</td>
                <td className="number">{about(vc.lent)}</td>
                <td className="number">{amount(vc.borrowed)}</td>
                <td className="number">{amount(vc.running)}</td>
                <td className="number">{amount(vc.pending)}</td>
                <td>{vc.policy}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Bars({ vc, most, colour }: { vc: Vc; most: number; colour: number }) {
  const share = (gpus: number) => ({ width: `${(100 * gpus) / most}%` });
  const free = Math.max(0, vc.gpus - vc.used - vc.lent);
  return (
    <div
      className="vc-bars"
      role="img"
      aria-label={`${amount(vc.used)} of ${amount(vc.gpus)} used, ${about(vc.lent)} lent, ${amount(vc.borrowed)} borrowed`}
    >
      <i className={`f${colour}`} style={share(Math.min(vc.used, vc.gpus))} />
      <i className="vc-lent" style={share(vc.lent)} />
      <i className="vc-free" style={share(free)} />
      <i className={`vc-borrowed f${colour}`} style={share(vc.borrowed)} />
    </div>
  );
}

/** A part of a division is no count. */
function about(gpus: number): string {
  return Number.isInteger(gpus) ? amount(gpus) : `≈ ${Math.round(gpus)}`;
}

function OverTime() {
  const [range, setRange] = useState<Range>("3600");
  const { data, error } = useQuery(historyQuery(Number(range), true));
  const lines = useMemo(() => {
    const line = (key: "used" | "borrowed" | "queue"): Line[] =>
      (data?.vcs ?? []).map((vc, index) => ({
        label: vc.name,
        colour: seriesColour(index),
        values: key === "used" ? vc.used.map((used, at) => plus(used, vc.borrowed[at])) : vc[key],
      }));
    return { used: line("used"), borrowed: line("borrowed"), queue: line("queue") };
  }, [data]);
  return (
    <Card
      title="Over time"
      note={`Means over ${data ? duration(data.step_s) : "…"}.`}
      aside={<Choice label="How far back" value={range} choices={RANGES} onChange={setRange} />}
    >
      {error && !data ? <Problem error={error} /> : null}
      {data ? null : <Room rows={9} />}
      {data ? (
        <div className="charts">
          <div>
            <h3>GPUs held</h3>
            <Chart label="GPUs held by each VC" x={data.t} lines={lines.used} together="vcs" />
          </div>
          <div>
            <h3>Waiting jobs</h3>
            <Chart label="Waiting jobs of each VC" x={data.t} lines={lines.queue} together="vcs" />
          </div>
          {lines.borrowed.some((line) => line.values.some(Boolean)) ? (
            <div>
              <h3>Borrowed GPUs</h3>
              <Chart label="GPUs borrowed by each VC" x={data.t} lines={lines.borrowed} together="vcs" />
            </div>
          ) : null}
        </div>
      ) : null}
    </Card>
  );
}

function plus(a: number | null, b: number | null | undefined): number | null {
  return a === null ? null : a + (b ?? 0);
}
