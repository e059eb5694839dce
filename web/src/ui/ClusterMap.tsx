// The map of the cluster on a canvas, and the same as a list for those who cannot point.
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo, useState, type PointerEvent } from "react";

import type { Schemas } from "../api/client";
import { drawMap } from "../draw/drawMap";
import { besideOnMap, colourJobs, type JobColour } from "../draw/colouring";
import { makeColouring, tenantsOf, type ColourBy } from "../draw/mapColours";
import { hitTest, layoutMap, type Hit } from "../draw/mapLayout";
import { useCanvas, useWidth } from "../draw/useCanvas";
import { amount, counted } from "../units";
import { Tip, type TipPlace } from "./Tip";

type ClusterMapData = Schemas["Map"];

interface Props {
  map: ClusterMapData;
  by: ColourBy;
  vcs: readonly string[];
  busy: ReadonlyMap<number, number>;
  lit?: ReadonlySet<string> | null;
  jobColour?: JobColour;
}

export function ClusterMap({ map, by, vcs, busy, lit = null, jobColour }: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const [hit, setHit] = useState<{ hit: Hit; at: TipPlace } | null>(null);
  const navigate = useNavigate();
  const layout = useMemo(() => layoutMap(map, width), [map, width]);
  const colour = useMemo(
    () => makeColouring(by, vcs, busy, jobColour ?? colourJobs(besideOnMap(map))),
    [by, vcs, busy, jobColour, map],
  );
  const hover = hit?.hit ?? null;
  const draw = useCallback(
    (context: CanvasRenderingContext2D, palette: Parameters<typeof drawMap>[1]) =>
      drawMap(context, palette, { map, layout, colour, lit, hover }),
    [map, layout, colour, lit, hover],
  );
  const canvas = useCanvas(width, layout.height, draw);

  const look = (event: PointerEvent<HTMLCanvasElement>): Hit | null => {
    const box = event.currentTarget.getBoundingClientRect();
    return hitTest(layout, map, event.clientX - box.left, event.clientY - box.top);
  };
  const point = (event: PointerEvent<HTMLCanvasElement>) => {
    const found = look(event);
    setHit(found && { hit: found, at: { x: event.clientX, y: event.clientY } });
  };
  const open = (event: PointerEvent<HTMLCanvasElement>) => {
    const found = look(event);
    const tenant = found && found.gpu >= 0 ? tenantsOf(map, gpuNumber(map, found))[0] : undefined;
    if (tenant) void navigate({ to: "/jobs/$id", params: { id: tenant.job.id } });
  };
  return (
    <div className="map">
      <div ref={place}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Map of ${counted(map.nodes.length, "node")} with ${counted(map.gpus.length, "GPU")}; the list below says the same`}
          style={{ width: "100%", height: layout.height }}
          onPointerMove={point}
          onPointerLeave={() => setHit(null)}
          onPointerUp={open}
        />
      </div>
      {hit ? (
        <Tip at={hit.at}>
          <MapTip map={map} hit={hit.hit} busy={busy} />
        </Tip>
      ) : null}
    </div>
  );
}

function gpuNumber(map: ClusterMapData, hit: Hit): number {
  return (map.nodes[hit.node]?.first ?? 0) + hit.gpu;
}

function MapTip({ map, hit, busy }: { map: ClusterMapData; hit: Hit; busy: ReadonlyMap<number, number> }) {
  const node = map.nodes[hit.node];
  if (!node) return null;
  const tenants = hit.gpu >= 0 ? tenantsOf(map, gpuNumber(map, hit)) : [];
  const share = hit.gpu >= 0 ? busy.get(gpuNumber(map, hit)) : undefined;
  return (
    <>
      <strong>
        {node.name}
        {hit.gpu >= 0 ? `, GPU ${hit.gpu}` : ""}
      </strong>
      <div>
        <span>{node.gpu_type || "GPUs"}</span>
        <span>{node.state}</span>
      </div>
      {share !== undefined ? <div>{Math.round(share * 100)}% busy</div> : null}
      {tenants.map(({ job, milli }) => (
        <div key={job.id}>
          <span className="name">
            {job.id} {job.name}
          </span>
          <span>
            {job.vc} · {job.user || "–"}
            {milli < 1000 ? ` · ${amount(milli / 1000)} GPU` : ""}
            {job.lent ? " · borrowed" : ""}
          </span>
        </div>
      ))}
      {hit.gpu >= 0 && !tenants.length ? <div>free</div> : null}
    </>
  );
}

/** The same in words, for keyboards and screen readers. */
export function MapList({ map }: { map: ClusterMapData }) {
  return (
    <details className="maplist">
      <summary>As a list</summary>
      <ul tabIndex={0} aria-label="Nodes and their jobs">
        {map.nodes.map((node) => (
          <NodeLine key={node.name} map={map} node={node} />
        ))}
      </ul>
    </details>
  );
}

function NodeLine({ map, node }: { map: ClusterMapData; node: Schemas["MapNode"] }) {
  const numbers = Array.from({ length: node.gpus }, (_, gpu) => node.first + gpu);
  const free = numbers.filter((gpu) => map.gpus[gpu] === -1).length;
  const jobs = new Map(numbers.flatMap((gpu) => tenantsOf(map, gpu)).map(({ job }) => [job.id, job]));
  return (
    <li>
      <b>{node.name}</b> {node.state === "up" ? "" : `(${node.state}) `}
      {free} of {counted(node.gpus, "GPU")} free
      {[...jobs.values()].map((job) => (
        <span key={job.id}>
          {" · "}
          <Link to="/jobs/$id" params={{ id: job.id }}>
            {job.id} {job.name}
          </Link>
        </span>
      ))}
    </li>
  );
}
