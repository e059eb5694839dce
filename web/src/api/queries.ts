// What pages ask for. The first word of a key says what the event stream must refresh.
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import type { Wanted } from "../live/pages";
import { api, asked, type Schemas } from "./client";
import { serverTime } from "../ui/now";
import { trimmed } from "./trim";

export const EVENTS_KEPT = 200;
export const JOB_EVENTS_MAX = 1000;
const PAGE = 200;

export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/me", { signal })),
  staleTime: 60_000,
});

export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/overview", { signal })),
});

export const mapQuery = queryOptions({
  queryKey: ["map"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/map", { signal })),
});

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/nodes", { signal })),
});

export const vcsQuery = queryOptions({
  queryKey: ["vcs"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/vcs", { signal })),
});

export const eventsQuery = queryOptions({
  queryKey: ["events"],
  queryFn: async ({ signal }) => {
    const query = { follow: false, last: EVENTS_KEPT };
    const events = await asked(api.GET("/api/v1/events", { params: { query }, signal }));
    return (events as Schemas["Event"][]).toReversed();
  },
  staleTime: Infinity,
});

/** `seconds` back from now. */
export function historyQuery(seconds: number, byVc = false) {
  return queryOptions({
    queryKey: ["history", seconds, byVc],
    queryFn: async ({ signal }) => {
      const query = { since: since(seconds), vc: byVc };
      return trimmed(await asked(api.GET("/api/v1/history", { params: { query }, signal })));
    },
    placeholderData: keepPreviousData,
  });
}

export function timelineQuery(seconds: number) {
  return queryOptions({
    queryKey: ["timeline", seconds],
    queryFn: ({ signal }) => {
      const query = { since: since(seconds), limit: 2000 };
      return asked(api.GET("/api/v1/timeline", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
}

export function since(seconds: number): number {
  return Math.max(0, Math.floor(serverTime() - seconds));
}

export interface JobsKey extends Wanted {
  sort: string;
}

export type State = Schemas["Job"]["state"];

export function jobsQuery(key: JobsKey) {
  return infiniteQueryOptions({
    queryKey: ["jobs", key],
    queryFn: ({ signal, pageParam }) => {
      return readPage(key, PAGE, pageParam, signal);
    },
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
  });
}

function readPage(key: JobsKey, limit: number, cursor: string, signal?: AbortSignal) {
  const { states, q, vc, user, group, all, sort } = key;
  const query = { state: [...states] as State[], q, vc, user, group, all, sort, limit, cursor };
  return asked(api.GET("/api/v1/jobs", { params: { query }, ...(signal ? { signal } : {}) }));
}

/** All jobs that match, also those that are not loaded. */
export async function readAll(key: JobsKey): Promise<Schemas["Job"][]> {
  const found: Schemas["Job"][] = [];
  let cursor: string | null = "";
  while (cursor !== null) {
    const page: Schemas["JobPage"] = await readPage(key, 1000, cursor);
    found.push(...page.jobs);
    cursor = page.next;
  }
  return found;
}

/** Jobs by state that fit the other filters. */
export function countsQuery({ q, vc, user, group }: JobsKey) {
  return queryOptions({
    queryKey: ["counts", { q, vc, user, group }],
    queryFn: async ({ signal }) => {
      const query = { q, vc, user, group, all: true, limit: 1, counts: true };
      return (await asked(api.GET("/api/v1/jobs", { params: { query }, signal }))).counts;
    },
    placeholderData: keepPreviousData,
  });
}

/** The name of a job; nothing where the reader may not see it. It never changes. */
export function nameQuery(id: string) {
  return queryOptions({ queryKey: ["name", id], queryFn: () => loadName(id), staleTime: Infinity });
}

const LOAD_MS = 20;
let loading: { ids: string[]; rows: Promise<Schemas["Job"][]> } | null = null;

/** Names that are wanted at the same time are one request. */
async function loadName(id: string): Promise<string> {
  loading ??= beginLoading();
  loading.ids.push(id);
  return (await loading.rows).find((job) => job.id === id)?.name ?? "";
}

function beginLoading() {
  const ids: string[] = [];
  const rows = new Promise<void>((done) => setTimeout(done, LOAD_MS)).then(() => {
    loading = null;
    return readRows(ids);
  });
  return { ids, rows };
}

/** The rows of these jobs, in any state. */
export async function readRows(ids: string[], signal?: AbortSignal): Promise<Schemas["Job"][]> {
  const query = { id: ids, all: true, limit: 1000 };
  return (await asked(api.GET("/api/v1/jobs", { params: { query }, ...(signal ? { signal } : {}) }))).jobs;
}

export function comparedQuery(group: string, jobs: readonly string[]) {
  return infiniteQueryOptions({
    queryKey: ["compare", group, jobs],
    queryFn: ({ signal, pageParam }) => {
      const query = group ? { group, cursor: pageParam } : { job: [...jobs], cursor: pageParam };
      return asked(api.GET("/api/v1/compare", { params: { query }, signal }));
    },
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    enabled: group !== "" || jobs.length > 0,
    refetchInterval: (query) =>
      query.state.data?.pages.some((page) => page.jobs.some((job) => job.finish_s === null)) ? 5000 : false,
  });
}

export const searchesQuery = queryOptions({
  queryKey: ["searches"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/searches", { signal })),
  refetchInterval: 5000,
});

export function searchQuery(name: string) {
  return queryOptions({
    queryKey: ["search", name],
    queryFn: ({ signal }) => asked(api.GET("/api/v1/searches/{name}", { params: { path: { name } }, signal })),
    refetchInterval: (query) => (query.state.data?.state === "ended" ? false : 2000),
  });
}

export function jobQuery(id: string) {
  return queryOptions({
    queryKey: ["job", id],
    queryFn: ({ signal }) => asked(api.GET("/api/v1/jobs/{id}", { params: { path: { id } }, signal })),
  });
}

export function explainQuery(id: string) {
  return queryOptions({
    queryKey: ["explain", id],
    queryFn: ({ signal }) => asked(api.GET("/api/v1/jobs/{id}/explain", { params: { path: { id } }, signal })),
  });
}

export function jobEventsQuery(id: string) {
  return queryOptions({
    queryKey: ["job-events", id],
    queryFn: async ({ signal }) => {
      const query = { follow: false, job: id, last: JOB_EVENTS_MAX };
      return (await asked(api.GET("/api/v1/events", { params: { query }, signal }))) as Schemas["Event"][];
    },
  });
}

export function curveQuery(id: string, keys: string[] = []) {
  return queryOptions({
    queryKey: ["curve", id, keys],
    queryFn: ({ signal }) =>
      asked(api.GET("/api/v1/jobs/{id}/curve", { params: { path: { id }, query: { key: keys } }, signal })),
  });
}

export function jobFileQuery(id: string) {
  return queryOptions({
    queryKey: ["file", id],
    queryFn: ({ signal }) => asked(api.GET("/api/v1/jobs/{id}/file", { params: { path: { id } }, signal })),
  });
}

export const examplesQuery = queryOptions({
  queryKey: ["examples"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/examples", { signal })),
  staleTime: Infinity,
});

export function usageQuery(vc: string, seconds: number) {
  return queryOptions({
    queryKey: ["usage", vc, seconds],
    queryFn: async ({ signal }) => {
      const query = { by: "user" as const, vc, since: since(seconds) };
      return (await asked(api.GET("/api/v1/usage", { params: { query }, signal }))) as Schemas["Usage"][];
    },
  });
}

export function drainQuery(name: string) {
  return queryOptions({
    queryKey: ["drain", name],
    queryFn: ({ signal }) => asked(api.GET("/api/v1/nodes/{name}/drain", { params: { path: { name } }, signal })),
    staleTime: 0,
  });
}

export const policyQuery = queryOptions({
  queryKey: ["policy"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/policy", { signal })),
  // A solver that gives no answer is not a change of the cluster, and the age of the last answer grows.
  refetchInterval: (query) => (query.state.data?.problems.length ? 5000 : 15_000),
});

export const policiesQuery = queryOptions({
  queryKey: ["policies"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/policies", { signal })),
  staleTime: Infinity,
});

export const decisionsQuery = infiniteQueryOptions({
  queryKey: ["decisions"],
  queryFn: ({ signal, pageParam }) => {
    const query = pageParam ? { last: 100, before: pageParam } : { last: 100 };
    return asked(api.GET("/api/v1/decisions", { params: { query }, signal }));
  },
  initialPageParam: 0,
  getNextPageParam: (page) => page.next,
});

export const tracesQuery = queryOptions({
  queryKey: ["traces"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/traces", { signal })),
});

export const studiesQuery = queryOptions({
  queryKey: ["studies"],
  queryFn: ({ signal }) => asked(api.GET("/api/v1/studies", { signal })),
  // Studies run beside the cluster and are not in its events; only while one is under way is it asked again.
  refetchInterval: (query) => (query.state.data?.some(isUnderWay) ? 1000 : false),
});

export function isUnderWay(study: Schemas["Study"]): boolean {
  return study.state === "queued" || study.state === "running";
}
