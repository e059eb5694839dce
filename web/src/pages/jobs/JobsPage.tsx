// All jobs: filtered, sorted, searched; quick with tens of thousands.
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { countsQuery, jobsQuery, readAll } from "../../api/queries";
import { Empty, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { counted } from "../../units";
import { BulkBar } from "./BulkBar";
import { Filters } from "./Filters";
import { JobsTable } from "./JobsTable";
import { nextSort, toKey, type JobsSearch } from "./search";
import { Views } from "./Views";
import { useOwnName } from "./views";

const route = getRouteApi("/frame/jobs");
type Job = Schemas["Job"];

export default function JobsPage() {
  useTitle("Jobs");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const client = useQueryClient();
  const [ownName] = useOwnName();
  const key = useMemo(() => toKey(search, ownName), [search, ownName]);
  const { data, error, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery(jobsQuery(key));
  const { data: counts = null } = useQuery(countsQuery(key));
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [matching, setMatching] = useState<readonly Job[] | null>(null);
  const choose = useCallback((wanted: ReadonlySet<string>, from: readonly Job[] | null = null) => {
    setChosen(wanted);
    setMatching(from);
  }, []);
  useEffect(() => choose(new Set()), [key, choose]);
  const jobs = useMemo(() => data?.pages.flatMap((page) => page.jobs) ?? [], [data]);
  const change = useCallback(
    (changes: Partial<JobsSearch>) => void navigate({ to: "/jobs", search: (known) => ({ ...known, ...changes }), replace: true }),
    [navigate],
  );
  const more = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  const picked = useMemo(() => (matching ?? jobs).filter((job) => chosen.has(job.id)), [matching, jobs, chosen]);
  const count = total(counts, key.states, key.all);
  const chooseAll = async () => {
    const all = await readAll(key);
    choose(new Set(all.map((job) => job.id)), all);
  };
  return (
    <>
      <div className="title">
        <h1>Jobs</h1>
        <div className="row">
          <Views search={search} onChoose={(chosen) => void navigate({ to: "/jobs", search: chosen })} />
          <Link to="/submit" className="button main">
            Submit a job
          </Link>
        </div>
      </div>
      <Filters search={search} counts={counts} onChange={change} />
      {error ? <Problem error={error} /> : null}
      {picked.length ? (
        <BulkBar
          jobs={picked}
          total={isEvery(jobs, chosen) && matching === null ? count : null}
          onAll={chooseAll}
          onDone={() => choose(new Set())}
        />
      ) : (
        <Shown
          jobs={jobs}
          total={count}
          isFetching={isFetching}
          onReload={() => void client.invalidateQueries({ queryKey: ["jobs", key] })}
        />
      )}
      {jobs.length || isFetching ? (
        <JobsTable
          jobs={jobs}
          sort={key.sort}
          chosen={chosen}
          onChoose={choose}
          onSort={(column) => change({ sort: nextSort(key.sort, column) })}
          onEnd={more}
        />
      ) : (
        <Empty>No job matches.</Empty>
      )}
    </>
  );
}

function isEvery(jobs: readonly Job[], chosen: ReadonlySet<string>): boolean {
  return jobs.every((job) => chosen.has(job.id));
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
