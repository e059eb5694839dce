// What the colours of the map mean.
import type { Schemas } from "../api/client";
import { seriesColour, STATE_COLOURS, type Colour } from "./palette";

type ClusterMap = Schemas["Map"];
type Node = Schemas["Node"];
export type ColourBy = "vc" | "job" | "state" | "utilisation";

export const FREE = -1;
export const SHARED = -2;

export interface Tenant {
  job: Schemas["MapJob"];
  milli: number;
}

/** Who is on a GPU of the map. */
export function tenantsOf(map: ClusterMap, gpu: number, shares = sharesByGpu(map)): Tenant[] {
  const place = map.gpus[gpu] ?? FREE;
  if (place >= 0) {
    const job = map.jobs[place];
    return job ? [{ job, milli: 1000 }] : [];
  }
  return place === SHARED ? (shares.get(gpu) ?? []) : [];
}

export function sharesByGpu(map: ClusterMap): Map<number, Tenant[]> {
  const found = new Map<number, Tenant[]>();
  for (const share of map.shares) {
    const job = map.jobs[share.job];
    if (!job) continue;
    const tenants = found.get(share.gpu) ?? [];
    tenants.push({ job, milli: share.milli });
    found.set(share.gpu, tenants);
  }
  return found;
}

/** By its place among all VCs, so that a VC has one colour on every page. */
export function vcColour(vcs: readonly string[], vc: string): Colour {
  return seriesColour(Math.max(0, vcs.indexOf(vc)));
}

/** How busy each GPU is, 0 to 1, by its number on the map; a driver that says nothing leaves it out. */
export function utilisations(map: ClusterMap, nodes: readonly Node[]): Map<number, number> {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const found = new Map<number, number>();
  for (const place of map.nodes) {
    for (const gpu of byName.get(place.name)?.health ?? []) {
      if (gpu.utilization !== null) found.set(place.first + gpu.index, gpu.utilization / 100);
    }
  }
  return found;
}

export function makeColouring(
  by: ColourBy,
  vcs: readonly string[],
  busy: ReadonlyMap<number, number>,
  jobColour: (id: string) => Colour,
) {
  return (gpu: number, tenant: Tenant): Colour => {
    if (by === "vc") return vcColour(vcs, tenant.job.vc);
    if (by === "job") return jobColour(tenant.job.id);
    if (by === "state") return STATE_COLOURS[tenant.job.state] ?? "quiet";
    return heat(busy.get(gpu) ?? tenant.milli / 1000);
  };
}

export function heat(share: number): Colour {
  const step = Math.min(3, Math.max(0, Math.floor(share * 4)));
  return `z${step}` as Colour;
}
