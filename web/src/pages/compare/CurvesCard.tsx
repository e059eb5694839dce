// What jobs reported, step by step, one chart for each series.
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Schemas } from "../../api/client";
import { curveQuery } from "../../api/queries";
import { seriesColour } from "../../draw/palette";
import { Chart } from "../../ui/Chart";
import { Card, Empty } from "../../ui/parts";
import { measured } from "../../units";
import { align, byImportance } from "./curves";

type Curve = Schemas["Curve"];

interface Props {
  jobs: readonly { id: string; name: string }[];
  drawn: readonly string[];
  /** Only these series; without them all that were reported. */
  keys?: readonly string[];
  note?: string | undefined;
}

export function CurvesCard({ jobs, drawn, keys: wanted, note }: Props) {
  const found = useQueries({ queries: drawn.map((id) => ({ ...curveQuery(id), refetchInterval: 5000 })) });
  const curves = found.flatMap((query) => (query.data ? [query.data] : []));
  const reported = [...new Set(curves.flatMap((curve) => curve.keys))];
  const shown = wanted ? reported.filter((key) => wanted.includes(key)) : reported;
  const keys = shown.map((key) => ({ key })).sort(byImportance);
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  return (
    <Card title="Curves" note={note}>
      {keys.length || found.some((query) => query.isPending) ? null : <Empty>None of them has reported anything.</Empty>}
      <div className="charts">
        {keys.map(({ key }) => (
          <OneChart key={key} name={key} drawn={drawn} names={names} curves={curves} />
        ))}
      </div>
    </Card>
  );
}

interface OneChartProps {
  name: string;
  drawn: readonly string[];
  names: ReadonlyMap<string, string>;
  curves: readonly Curve[];
}

function OneChart({ name, drawn, names, curves }: OneChartProps) {
  const { x, lines } = useMemo(() => {
    const series = drawn.map((id) => curves.find((curve) => curve.job === id)?.series.find((one) => one.key === name));
    const aligned = align(series);
    const lines = drawn.map((id, index) => ({
      label: `${id} ${names.get(id) ?? ""}`,
      values: aligned.values[index] ?? [],
      colour: seriesColour(index),
      isDashed: index >= 8,
    }));
    return { x: aligned.x, lines };
  }, [name, drawn, names, curves]);
  return (
    <div>
      <h3>{name}</h3>
      <Chart
        label={`${name} by step`}
        x={x}
        lines={lines}
        isTime={false}
        fromZero={false}
        height={240}
        format={measured}
        spanGaps
        together="compare"
      />
    </div>
  );
}
