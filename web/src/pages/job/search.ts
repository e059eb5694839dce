/** Which part of a job is shown: a tab, or a line of its logs. */
export interface JobSearch {
  tab?: string;
  task?: string;
  attempt?: number;
  line?: number;
}

export function readJobSearch(search: Record<string, unknown>): JobSearch {
  const found: JobSearch = {};
  if (typeof search.tab === "string") found.tab = search.tab;
  if (typeof search.task === "string") found.task = search.task;
  for (const key of ["attempt", "line"] as const) {
    const value = Number(search[key]);
    if (Number.isInteger(value) && value > 0) found[key] = value;
  }
  return found;
}
