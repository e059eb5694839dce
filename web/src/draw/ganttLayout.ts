// The timeline: a row for each GPU, a bar for each job on it.
import type { Schemas } from "../api/client";

type Span = Schemas["Span"];

export interface Bar {
  span: Span;
  row: number;
  /** How many rows below each other. */
  rows: number;
  /** Part of the row, from its top: a job that shares a GPU has less than all of it. */
  from: number;
  part: number;
}

export interface GanttRows {
  /** Nodes with the number of their first row. */
  nodes: { name: string; first: number; gpus: number }[];
  count: number;
  bars: Bar[];
}

/** Rows for these nodes, or, without any, for the GPUs that were held at all. */
export function layoutGantt(spans: readonly Span[], nodes: readonly { name: string; gpus: number }[]): GanttRows {
  const known = nodes.length ? nodes : nodesOf(spans);
  const places: GanttRows["nodes"] = [];
  let count = 0;
  for (const { name, gpus } of known) {
    places.push({ name, first: count, gpus });
    count += gpus;
  }
  const byName = new Map(places.map((place) => [place.name, place]));
  return { nodes: places, count, bars: barsOf(spans, byName) };
}

function nodesOf(spans: readonly Span[]): { name: string; gpus: number }[] {
  const most = new Map<string, number>();
  for (const held of spans.flatMap((span) => span.held)) {
    most.set(held.node, Math.max(most.get(held.node) ?? 0, ...held.gpus.map((gpu) => gpu + 1)));
  }
  return [...most]
    .map(([name, gpus]) => ({ name, gpus }))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

function barsOf(spans: readonly Span[], nodes: ReadonlyMap<string, { first: number; gpus: number }>): Bar[] {
  const bars: Bar[] = [];
  const shared = new Map<number, Bar[]>();
  for (const span of spans) {
    for (const held of span.held) {
      const node = nodes.get(held.node);
      if (!node) continue;
      for (const [gpu, rows] of runs(held.gpus.filter((index) => index < node.gpus))) {
        const bar: Bar = { span, row: node.first + gpu, rows, from: 0, part: Math.min(1, held.milli / 1000) };
        if (bar.part < 1) bar.from = freeFrom(shared, bar);
        bars.push(bar);
      }
    }
  }
  return bars;
}

/** `[0, 1, 2, 5]` → `[0, 3], [5, 1]`. */
export function runs(indices: readonly number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const index of [...indices].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[0] + last[1] === index) last[1] += 1;
    else found.push([index, 1]);
  }
  return found;
}

/** The free part of the row at that time, beside jobs that share the GPU. */
function freeFrom(shared: Map<number, Bar[]>, bar: Bar): number {
  const others = shared.get(bar.row) ?? [];
  shared.set(bar.row, [...others, bar]);
  const now = others.filter((other) => overlaps(other.span, bar.span)).sort((a, b) => a.from - b.from);
  let from = 0;
  for (const other of now) {
    if (other.from - from >= bar.part - 1e-9) break;
    from = Math.max(from, other.from + other.part);
  }
  return Math.min(from, 1 - bar.part);
}

function overlaps(a: Span, b: Span): boolean {
  return a.start_s < (b.end_s ?? Infinity) && b.start_s < (a.end_s ?? Infinity);
}

/** Enough for the name of a node beside its GPUs. */
const NODE_HEIGHT = 18;

/** As much as fits into `height`, up to `most`; more where a node has so few GPUs that its name would be cut. */
export function rowHeightOf(rows: GanttRows, most: number, height: number): number {
  const fewest = Math.max(1, Math.min(NODE_HEIGHT, ...rows.nodes.map((node) => node.gpus)));
  const wanted = Math.max(most, Math.ceil(NODE_HEIGHT / fewest));
  return Math.max(3, Math.min(wanted, Math.floor(height / Math.max(1, rows.count))));
}
