import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { mapQuery, nodesQuery, vcsQuery } from "../../api/queries";
import type { JobColour } from "../../draw/colouring";
import { utilisations, type ColourBy } from "../../draw/mapColours";
import { SERIES } from "../../draw/palette";
import { Choice } from "../../ui/Choice";
import { ClusterMap, MapList } from "../../ui/ClusterMap";
import { Card, Empty, Problem } from "../../ui/parts";

const CHOICES = [
  ["vc", "VC"],
  ["job", "Job"],
  ["state", "State"],
  ["utilisation", "Utilisation"],
] as const;
const NONE: never[] = [];

export function MapCard({ jobColour }: { jobColour: JobColour }) {
  const [by, setBy] = useState<ColourBy>("vc");
  const { data: map, error } = useQuery(mapQuery);
  const { data: vcs = NONE } = useQuery(vcsQuery);
  const { data: nodes = NONE } = useQuery({ ...nodesQuery, enabled: by === "utilisation" });
  const names = useMemo(() => vcs.map((vc) => vc.name), [vcs]);
  const busy = useMemo(() => (map ? utilisations(map, nodes) : new Map<number, number>()), [map, nodes]);
  const choice = <Choice label="Colour by" value={by} choices={CHOICES} onChange={setBy} />;
  return (
    <Card title="Cells" aside={choice}>
      {error && !map ? <Problem error={error} /> : null}
      {map?.nodes.length === 0 ? <Empty>This cluster has no nodes.</Empty> : null}
      {map ? (
        <>
          <ClusterMap map={map} by={by} vcs={names} busy={busy} jobColour={jobColour} />
          <Keys by={by} vcs={names} map={map} isMeasured={busy.size > 0} />
          <MapList map={map} />
        </>
      ) : null}
    </Card>
  );
}

function Keys({ by, vcs, map, isMeasured }: { by: ColourBy; vcs: string[]; map: Schemas["Map"]; isMeasured: boolean }) {
  return (
    <ul className="keys map-keys">
      {keysOf(by, vcs, isMeasured).map(([colour, text]) => (
        <li key={text}>
          <span className={`key f${colour}`} />
          <span className="name">{text}</span>
        </li>
      ))}
      <li>
        <span className="key fidle" />
        free
      </li>
      {map.nodes.some((node) => node.state !== "up") ? (
        <li>
          <span className="key out" />
          drained or lost
        </li>
      ) : null}
      {map.jobs.some((job) => job.lent) ? (
        <li>
          <span className="key lent" />
          with a dot: borrowed
        </li>
      ) : null}
    </ul>
  );
}

function keysOf(by: ColourBy, vcs: string[], isMeasured: boolean): (readonly [string, string])[] {
  if (by === "vc") return vcs.map((name, index) => [String(index % SERIES), name]);
  if (by === "state")
    return [
      ["2", "running"],
      ["5", "launching"],
      ["4", "stopping"],
    ];
  if (by === "job") return [["0", "neighbours differ in colour; point at a GPU to see whose it is"]];
  const what = isMeasured ? "busy" : "given to jobs (no driver says how busy)";
  return [
    ["z0", `under 25% ${what}`],
    ["z1", "25–50%"],
    ["z2", "50–75%"],
    ["z3", "over 75%"],
  ];
}
