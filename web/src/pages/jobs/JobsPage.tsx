// All jobs: filtered, sorted, searched; quick with tens of thousands.
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { countsQuery, jobsQuery } from "../../api/queries";
import { Empty, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { counted } from "../../units";
import { BulkBar } from "./BulkBar";
import { Filters } from "./Filters";
import { JobsTable } from "./JobsTable";
import { nextSort, toKey, type JobsSearch } from "./search";

const route = getRouteApi("/frame/jobs");
type Job = Schemas["Job"];
const PROGRESS_MS = 15_000;

export default function JobsPage() {
  useTitle("Jobs");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const client = useQueryClient();
  const key = useMemo(() => toKey(search), [search]);
  const { data, error, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery({
    ...jobsQuery(key),
    // What jobs say of their own progress is no event; long lists are left alone.
    refetchInterval: (query) => (query.state.data?.pages.length === 1 ? PROGRESS_MS : false),
  });
  const { data: counts = null } = useQuery(countsQuery(key));
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const jobs = useMemo(() => data?.pages.flatMap((page) => page.jobs) ?? [], [data]);
  const change = useCallback(
    (changes: Partial<JobsSearch>) => void navigate({ search: (known) => ({ ...known, ...changes }), replace: true }),
    [navigate],
  );
  const more = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  const picked = useMemo(() => jobs.filter((job) => chosen.has(job.id)), [jobs, chosen]);
  return (
    <>
      <div className="title">
        <h1>Jobs</h1>
        <Link to="/submit" className="button main">
          Submit a job
        </Link>
      </div>
      <Filters search={search} counts={counts} onChange={change} />
      {error ? <Problem error={error} /> : null}
      {picked.length ? (
        <BulkBar jobs={picked} onDone={() => setChosen(new Set())} />
      ) : (
        <Shown
          jobs={jobs}
          total={total(counts, key.states, key.all)}
          isFetching={isFetching}
          onReload={() => void client.invalidateQueries({ queryKey: ["jobs", key] })}
        />
      )}
      {jobs.length || isFetching ? (
        <JobsTable
          jobs={jobs}
          sort={key.sort}
          chosen={chosen}
          onChoose={setChosen}
          onSort={(column) => change({ sort: nextSort(key.sort, column) })}
          onEnd={more}
        />
      ) : (
        <Empty>No job matches.</Empty>
      )}
    </>
  );
}

function total(counts: Schemas["StateCounts"] | null, states: readonly string[], all: boolean): number | null {
  if (!counts) return null;
  const open = all ? Object.keys(counts) : ["pending", "launching", "running", "suspended", "stopping"];
  const wanted = states.length ? states : open;
  return Object.entries(counts).reduce((sum, [state, count]) => sum + (wanted.includes(state) ? count : 0), 0);
}

function Shown(props: { jobs: readonly Job[]; total: number | null; isFetching: boolean; onReload: () => void }) {
  const total = props.total === null ? props.jobs.length : Math.max(props.total, props.jobs.length);
  return (
    <div className="row bulk" role="status">
      <span className="quiet">
        {counted(total, "job")}
        {props.jobs.length < total ? `, ${props.jobs.length.toLocaleString("en")} loaded` : ""}
        {props.isFetching ? " …" : ""}
      </span>
      <button className="plain" onClick={props.onReload}>
        Reload
      </button>
    </div>
  );
}
