import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { mapQuery, timelineQuery, vcsQuery } from "../../api/queries";
import type { Bar } from "../../draw/ganttLayout";
import { vcColour } from "../../draw/mapColours";
import { Choice } from "../../ui/Choice";
import { Gantt } from "../../ui/Gantt";
import type { JobColour } from "../../draw/colouring";
import { Card, Empty, Problem, Room } from "../../ui/parts";

export const RANGES = [
  ["3600", "1 h"],
  ["21600", "6 h"],
  ["86400", "24 h"],
  ["604800", "7 d"],
] as const;
export type Range = (typeof RANGES)[number][0];
const NONE: never[] = [];

export function TimelineCard({ jobColour }: { jobColour: JobColour }) {
  const [range, setRange] = useState<Range>("3600");
  const [by, setBy] = useState<"vc" | "job">("job");
  const { data, error, isPending } = useQuery(timelineQuery(Number(range)));
  const { data: map } = useQuery(mapQuery);
  const { data: vcs = NONE } = useQuery(vcsQuery);
  const names = useMemo(() => vcs.map((vc) => vc.name), [vcs]);
  const colour = useCallback(
    (bar: Bar) => (by === "vc" ? vcColour(names, bar.span.vc) : jobColour(bar.span.job)),
    [by, names, jobColour],
  );
  const aside = (
    <div className="row">
      <Choice
        label="Colour by"
        value={by}
        choices={[
          ["job", "Job"],
          ["vc", "VC"],
        ]}
        onChange={setBy}
      />
      <Choice label="How far back" value={range} choices={RANGES} onChange={setRange} />
    </div>
  );
  const note = data?.is_cut
    ? "There were more; the latest are shown."
    : "Jobs on GPUs over time. Drag to move, Ctrl and the wheel to zoom.";
  return (
    <Card title="Timeline" aside={aside} note={note}>
      {error && !data ? <Problem error={error} /> : null}
      {isPending ? <Room rows={4} /> : null}
      {data?.spans.length === 0 ? <Empty>No job held a GPU in this time.</Empty> : null}
      {data && map && data.spans.length ? (
        <Gantt label="Timeline of GPUs" spans={data.spans} nodes={map.nodes} from_s={beginOf(data)} colour={colour} />
      ) : null}
    </Card>
  );
}

/** Where there is something to be seen; a server that has just started has no yesterday. */
function beginOf({ since_s, until_s, spans }: Schemas["Timeline"]): number {
  const first = Math.min(...spans.map((span) => span.start_s));
  return Math.max(since_s, first - Math.max(5, (until_s - first) * 0.03));
}
