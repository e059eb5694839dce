// The filters of the jobs page live in its address.
import type { JobsKey } from "../../api/queries";

export const STATES = ["pending", "launching", "running", "suspended", "stopping", "succeeded", "failed", "stopped"] as const;
export const SORTS = ["id", "name", "user", "vc", "state", "gpus", "priority", "waited", "ran"] as const;

/** As it stands in the address: nothing for what is not filtered. */
export interface JobsSearch {
  state?: string;
  q?: string;
  vc?: string;
  user?: string;
  group?: string;
  mine?: boolean;
  all?: boolean;
  sort?: string;
}

export function readJobsSearch(search: Record<string, unknown>): JobsSearch {
  const found: JobsSearch = {};
  for (const key of ["q", "vc", "user", "group"] as const) {
    const value = search[key];
    if (value !== undefined && value !== "") found[key] = String(value);
  }
  const states = typeof search.state === "string" ? search.state.split(",").filter(isState) : [];
  if (states.length) found.state = states.join(",");
  for (const key of ["mine", "all"] as const) if (String(search[key]) === "true") found[key] = true;
  if (typeof search.sort === "string" && isSort(search.sort)) found.sort = search.sort;
  return found;
}

/** `ownName`: whose jobs are "mine". */
export function toKey(search: JobsSearch, ownName = ""): JobsKey {
  return {
    states: search.state ? search.state.split(",") : [],
    q: search.q ?? "",
    vc: search.vc ?? "",
    user: search.mine && ownName ? ownName : (search.user ?? ""),
    group: search.group ?? "",
    all: search.all ?? false,
    sort: search.sort ?? "-id",
  };
}

/** A click on a heading: upwards, downwards, and as it was. */
export function nextSort(now: string, column: string): string | undefined {
  if (now === column) return `-${column}`;
  return now === `-${column}` ? undefined : column;
}

function isState(text: string): boolean {
  return (STATES as readonly string[]).includes(text);
}

function isSort(text: string): boolean {
  return (SORTS as readonly string[]).includes(text.replace(/^-/, ""));
}
