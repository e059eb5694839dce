// Filters that the reader gave a name, and the reader's own name where the server does not know it; kept in this browser.
import { useQuery } from "@tanstack/react-query";

import { meQuery } from "../../api/queries";
import { useStored } from "../../ui/stored";
import { readJobsSearch, type JobsSearch } from "./search";

export interface View {
  name: string;
  search: JobsSearch;
}

const VIEWS = "skep-views";
const NAME = "skep-name";

export function readViews(text: string | null): View[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) return [];
    return found.flatMap((one: Partial<View>) =>
      typeof one?.name === "string" ? [{ name: one.name, search: readJobsSearch({ ...one.search }) }] : [],
    );
  } catch {
    return [];
  }
}

export function useViews(): { views: View[]; save: (view: View) => void; forget: (name: string) => void } {
  const [text, setText] = useStored(localStorage, VIEWS);
  const views = readViews(text);
  const keep = (changed: View[]) => setText(JSON.stringify(changed));
  const without = (name: string) => views.filter((view) => view.name !== name);
  return {
    views,
    save: (view) => keep([...without(view.name), view].sort((a, b) => a.name.localeCompare(b.name))),
    forget: (name) => keep(without(name)),
  };
}

/** Whose jobs are "mine": as the server knows it, or as the reader said. */
export function useOwnName(): [name: string, say: (name: string) => void] {
  const me = useQuery(meQuery).data;
  const [said, say] = useStored(localStorage, NAME);
  return [me?.user || (said ?? ""), say];
}

export function isSame(a: JobsSearch, b: JobsSearch): boolean {
  const text = (search: JobsSearch) => JSON.stringify(Object.entries(search).sort());
  return text(a) === text(b);
}
