// Keeps what was read up to date by the event stream: rows are patched, totals asked again now and then.
import { useQueryClient, type InfiniteData, type Query, type QueryClient, type QueryFilters } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";

import { EVENTS_KEPT, type JobsKey } from "../api/queries";
import type { Schemas } from "../api/client";
import { addEvents, merge, type Batch, type Event } from "./merge";
import { patchPages } from "./pages";
import { LiveStream, type Link } from "./stream";
import { Throttle } from "./throttle";

type JobPage = Schemas["JobPage"];
type Pages = InfiniteData<JobPage>;

/** Answers that are not patched: how often at most they are asked again while much happens, in milliseconds. */
const REFRESH: Record<string, number> = {
  overview: 2000,
  map: 2000,
  nodes: 3000,
  vcs: 3000,
  counts: 3000,
  decisions: 3000,
  explain: 3000,
  jobs: 10_000,
  timeline: 5000,
  history: 10_000,
};

/** Lists with more pages are not read again: their rows are patched, but why jobs wait changes with other jobs. */
const PAGES_MOST = 5;

const LinkState = createContext<Link>("waiting");

export function useLink(): Link {
  return useContext(LinkState);
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [link, setLink] = useState<Link>("waiting");
  useEffect(() => {
    const refresh = makeRefresh(client);
    const stream = new LiveStream("/api/v1/changes", {
      onChanges: (changes) => apply(client, merge(changes), refresh),
      onResync: () => void client.invalidateQueries(),
      onLink: setLink,
    });
    stream.start();
    return () => {
      stream.stop();
      for (const throttle of Object.values(refresh)) throttle.stop();
    };
  }, [client]);
  return <LinkState value={link}>{children}</LinkState>;
}

function makeRefresh(client: QueryClient): Record<string, Throttle> {
  const make = (key: string, milliseconds: number) =>
    new Throttle(() => void client.invalidateQueries(isShort(key), { cancelRefetch: false }), milliseconds);
  return Object.fromEntries(Object.entries(REFRESH).map(([key, milliseconds]) => [key, make(key, milliseconds)]));
}

function isShort(key: string): QueryFilters {
  const pagesOf = (query: Query) => (query.state.data as Partial<Pages> | undefined)?.pages?.length ?? 0;
  return { queryKey: [key], predicate: (query) => pagesOf(query) <= PAGES_MOST };
}

function apply(client: QueryClient, batch: Batch, refresh: Record<string, Throttle>): void {
  patchJobs(client, batch.jobs);
  if (batch.events.length) {
    client.setQueryData<Event[]>(["events"], (known) => known && addEvents(known, batch.events, EVENTS_KEPT));
    for (const throttle of Object.values(refresh)) throttle.ask();
  }
  for (const id of new Set(batch.events.map((event) => event.job_id))) {
    if (id === null) continue;
    for (const key of ["job", "job-events"])
      void client.invalidateQueries({ queryKey: [key, id] }, { cancelRefetch: false });
  }
  if (batch.cluster) {
    for (const key of ["policy", "nodes", "vcs", "map", "cluster"]) void client.invalidateQueries({ queryKey: [key] });
  }
}

export function patchJobs(client: QueryClient, jobs: Batch["jobs"]): void {
  if (!jobs.size) return;
  for (const query of client.getQueryCache().findAll({ queryKey: ["jobs"] })) {
    const wanted = query.queryKey[1] as JobsKey;
    client.setQueryData<InfiniteData<JobPage>>(query.queryKey, (data) => {
      if (!data) return data;
      const pages = patchPages(data.pages, jobs, wanted, wanted.sort === "-id") as JobPage[];
      return pages.every((page, index) => page === data.pages[index]) ? data : { ...data, pages };
    });
  }
  for (const [id, job] of jobs) {
    client.setQueryData<Schemas["JobDetail"]>(["job", id], (known) =>
      known && job.at_s >= known.at_s ? { ...known, ...job } : known,
    );
  }
}
