import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { historyQuery } from "../../api/queries";
import { Chart, type Line } from "../../ui/Chart";
import { Choice } from "../../ui/Choice";
import { Card, Problem, Room } from "../../ui/parts";
import { duration } from "../../units";
import { RANGES, type Range } from "./TimelineCard";

export function HistoryCard() {
  const [range, setRange] = useState<Range>("3600");
  const { data, error } = useQuery(historyQuery(Number(range)));
  return (
    <Card
      title="Over time"
      note={`Means over ${data ? duration(data.step_s) : "…"}.`}
      aside={<Choice label="How far back" value={range} choices={RANGES} onChange={setRange} />}
    >
      {error && !data ? <Problem error={error} /> : null}
      {data ? <Series data={data} /> : <Room rows={9} />}
    </Card>
  );
}

function Series({ data }: { data: Schemas["History"] }) {
  const gpus = useMemo<Line[]>(() => gpuLines(data), [data]);
  const queue = useMemo<Line[]>(
    () => [
      { label: "waiting jobs", values: data.queue, colour: "s1", isFilled: true },
      { label: "GPUs they ask for", values: data.queue_gpus, colour: "s3", isDashed: true },
    ],
    [data],
  );
  return (
    <div className="charts">
      <div>
        <h3>GPUs</h3>
        <Chart label="GPUs used over time" x={data.t} lines={gpus} together="overview" />
      </div>
      <div>
        <h3>Queue</h3>
        <Chart label="The queue over time" x={data.t} lines={queue} together="overview" />
      </div>
    </div>
  );
}

/** Lent, bad and drained ones only where there were any. */
function gpuLines(data: Schemas["History"]): Line[] {
  const all: Line[] = [
    { label: "used", values: data.used, colour: "s0", isFilled: true },
    { label: "there", values: data.gpus, colour: "s6", isDashed: true },
  ];
  const more: Line[] = [
    { label: "lent", values: data.lent, colour: "s2" },
    { label: "bad", values: data.bad, colour: "s1" },
    { label: "drained", values: data.drained, colour: "s4" },
  ];
  return [...all, ...more.filter((line) => line.values.some((value) => value))];
}
