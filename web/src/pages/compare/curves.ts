// Curves of several jobs on one axis.
import type { Schemas } from "../../api/client";

type Series = Schemas["Series"];
const FIRST = ["loss", "accuracy", "samples_per_s"];

/** Loss first, then what is like it, then by name. */
export function byImportance(a: { key: string }, b: { key: string }): number {
  return rank(a.key) - rank(b.key) || a.key.localeCompare(b.key);
}

function rank(key: string): number {
  const place = FIRST.findIndex((name) => key === name);
  return place >= 0 ? place : key.includes("loss") ? 0.5 : FIRST.length;
}

export interface Aligned {
  x: number[];
  values: (number | null)[][];
}

/** All steps of all curves in order; a curve has nothing at the steps of others, which are drawn across. */
export function align(all: readonly (Series | undefined)[]): Aligned {
  const steps = new Set<number>();
  for (const series of all) for (const step of series?.step ?? []) if (step !== null) steps.add(step);
  const x = [...steps].sort((a, b) => a - b);
  const values = all.map((series) => {
    const known = new Map(series?.step.map((step, index) => [step, series.value[index] ?? null]));
    return x.map((step) => known.get(step) ?? null);
  });
  return { x, values };
}
