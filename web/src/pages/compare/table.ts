// All jobs of a sweep as rows: what they were given, what they reported last, which is the best.
import type { Schemas } from "../../api/client";
import { ranOf } from "../jobs/times";
import { byImportance } from "./curves";
import { differences } from "./parameters";

export type Compared = Schemas["Compared"];
type Cell = string | number | null;

export interface Column {
  id: string;
  title: string;
  kind: "own" | "parameter" | "value";
  of: (job: Compared, now_s: number) => Cell;
}

/** What a report says of itself and not of the model. */
const UNMEASURED = new Set(["at_s", "steps", "checkpoint_step"]);
const OWN: readonly Column[] = [
  { id: "job", title: "Job", kind: "own", of: (job) => Number(job.id) },
  { id: "state", title: "State", kind: "own", of: (job) => job.state },
  { id: "ran", title: "Ran", kind: "own", of: ranOf },
];

export function columnsOf(jobs: readonly Compared[]): Column[] {
  return [...OWN, ...parametersOf(jobs), ...valuesOf(jobs)];
}

/** The parameters of a sweep; without any, the fields in which the requests differ. */
function parametersOf(jobs: readonly Compared[]): Column[] {
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job.request.parameters)))];
  if (names.length)
    return names.map((name) => ({
      id: `p.${name}`,
      title: name,
      kind: "parameter",
      of: (job) => numberOr(job.request.parameters[name] ?? null),
    }));
  const places = new Map(jobs.map((job, index) => [job.id, index]));
  return differences(
    jobs.map((job) => job.request),
    false,
  ).map((row) => ({
    id: `p.${row.name}`,
    title: row.name,
    kind: "parameter",
    of: (job) => numberOr(row.values[places.get(job.id) ?? -1] || null),
  }));
}

function valuesOf(jobs: readonly Compared[]): Column[] {
  const isNumber = (value: unknown) => typeof value === "number";
  const keys = new Set(
    jobs.flatMap((job) => Object.entries(job.values).flatMap(([key, value]) => (isNumber(value) ? [key] : []))),
  );
  return [...keys]
    .filter((key) => !UNMEASURED.has(key))
    .map((key) => ({ key }))
    .sort(byImportance)
    .map(({ key }) => ({
      id: `v.${key}`,
      title: key,
      kind: "value",
      of: (job) => (isNumber(job.values[key]) ? (job.values[key] as number) : null),
    }));
}

function numberOr(text: string | null): Cell {
  return text !== null && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** `-v.loss`: the largest first. Rows without a value are last either way. */
export function sorted(jobs: readonly Compared[], columns: readonly Column[], sort: string, now_s: number): Compared[] {
  const column = columns.find((one) => one.id === sort.replace(/^-/, ""));
  if (!column) return [...jobs];
  const sign = sort.startsWith("-") ? -1 : 1;
  return jobs
    .map((job) => ({ job, value: column.of(job, now_s) }))
    .sort((a, b) => {
      if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null);
      if (typeof a.value === "number" && typeof b.value === "number") return sign * (a.value - b.value);
      return sign * String(a.value).localeCompare(String(b.value), "en", { numeric: true });
    })
    .map(({ job }) => job);
}

const LOWER_IS_BETTER = /loss|err|perplexity|ppl|mse|mae|rmse|latency|seconds|_s$/i;

/** Whether less is better, as the name says: a loss, an error, a time. */
export function isLowerBetter(key: string): boolean {
  return LOWER_IS_BETTER.test(key) && !/per_s$/.test(key);
}

/** Those with the best last value; several where they are equal, none where nobody reported it. */
export function bestOf(jobs: readonly Compared[], key: string, isLower: boolean): ReadonlySet<string> {
  const known = jobs.flatMap((job) => {
    const value = job.values[key];
    return typeof value === "number" && Number.isFinite(value) ? [{ id: job.id, value }] : [];
  });
  if (!known.length) return new Set();
  const values = known.map(({ value }) => value);
  const best = values.reduce((a, b) => (isLower ? Math.min(a, b) : Math.max(a, b)));
  return new Set(known.filter(({ value }) => value === best).map(({ id }) => id));
}
