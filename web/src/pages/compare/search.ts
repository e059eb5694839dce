/** Which jobs, in which order, and what makes one the best. */
export interface CompareSearch {
  jobs?: string;
  group?: string;
  sort?: string;
  best?: string;
  better?: "low" | "high";
}

export function readCompareSearch(search: Record<string, unknown>): CompareSearch {
  const found: CompareSearch = {};
  for (const key of ["jobs", "group", "sort", "best"] as const) {
    if (search[key] !== undefined && search[key] !== "") found[key] = String(search[key]);
  }
  if (search.better === "low" || search.better === "high") found.better = search.better;
  return found;
}
