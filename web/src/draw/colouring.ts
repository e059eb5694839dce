// Colours of jobs: the same wherever a job is drawn, and another than that of any job beside it.
import type { Schemas } from "../api/client";
import { tenantsOf, sharesByGpu } from "./mapColours";
import { SERIES, seriesColour, type Colour } from "./palette";

type Pair = readonly [string, string];
export type JobColour = (id: string) => Colour;

/** Colours that a quick look may take for each other: two blues, orange and ochre. */
const ALIKE: Record<number, number> = { 0: 5, 5: 0, 1: 4, 4: 1 };

/** Older jobs choose first, so that a new one changes no colour: each its own, unless a neighbour has it. */
export function colourJobs(pairs: Iterable<Pair>): JobColour {
  const beside = new Map<string, Set<string>>();
  for (const [one, other] of pairs) {
    if (one === other) continue;
    add(beside, one, other);
    add(beside, other, one);
  }
  const chosen = new Map<string, number>();
  for (const id of [...beside.keys()].sort((a, b) => Number(a) - Number(b))) {
    const used = new Array<number>(SERIES).fill(0);
    for (const other of beside.get(id) ?? []) {
      const colour = chosen.get(other);
      if (colour === undefined) continue;
      used[colour] = (used[colour] ?? 0) + 2;
      const alike = ALIKE[colour];
      if (alike !== undefined) used[alike] = (used[alike] ?? 0) + 1;
    }
    chosen.set(id, leastUsed(used, own(id)));
  }
  return (id) => seriesColour(chosen.get(id) ?? own(id));
}

function add(beside: Map<string, Set<string>>, one: string, other: string): void {
  const known = beside.get(one);
  if (known) known.add(other);
  else beside.set(one, new Set([other]));
}

function own(id: string): number {
  return (Number(id) || 0) % SERIES;
}

function leastUsed(used: readonly number[], first: number): number {
  const order = used.map((_, step) => (first + step) % SERIES);
  return order.reduce((best, colour) => ((used[colour] ?? 0) < (used[best] ?? 0) ? colour : best), first);
}

/** Jobs on the same node, and on the next one. */
export function besideOnMap(map: Schemas["Map"]): Pair[] {
  const shares = sharesByGpu(map);
  const byNode = map.nodes.map((node) => {
    const gpus = Array.from({ length: node.gpus }, (_, gpu) => node.first + gpu);
    return [...new Set(gpus.flatMap((gpu) => tenantsOf(map, gpu, shares)).map(({ job }) => job.id))];
  });
  return byNode.flatMap((jobs, node) => [
    ...jobs.flatMap((one, at) => jobs.slice(at + 1).map((other): Pair => [one, other])),
    ...jobs.flatMap((one) => (byNode[node + 1] ?? []).slice(0, 2).map((other): Pair => [one, other])),
  ]);
}

/** Jobs on the same or the next GPU, at the same time or one right after the other. */
export function besideInTime(spans: readonly Schemas["Span"][]): Pair[] {
  const byNode = new Map<string, { job: string; gpus: readonly number[]; from: number; to: number }[]>();
  for (const span of spans) {
    for (const held of span.held) {
      const known = byNode.get(held.node) ?? [];
      known.push({ job: span.job, gpus: held.gpus, from: span.start_s, to: span.end_s ?? Infinity });
      byNode.set(held.node, known);
    }
  }
  const pairs: Pair[] = [];
  for (const held of byNode.values()) {
    held.sort((a, b) => a.from - b.from);
    const last = new Map<number, (typeof held)[number]>();
    for (const now of held) {
      for (const gpu of now.gpus) {
        const before = last.get(gpu);
        if (before) pairs.push([before.job, now.job]);
        for (const row of [gpu - 1, gpu + 1]) {
          const near = last.get(row);
          if (near && near.to > now.from) pairs.push([near.job, now.job]);
        }
      }
      for (const gpu of now.gpus) last.set(gpu, now);
    }
  }
  return pairs;
}
