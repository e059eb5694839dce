// All jobs of a sweep, or several jobs, side by side: parameters, what they reported last, the best, curves.
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";

import { comparedQuery } from "../../api/queries";
import { serverTime } from "../../ui/now";
import { Card, Empty, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { counted } from "../../units";
import { nextSort } from "../jobs/search";
import { ComparedTable } from "./ComparedTable";
import { CurvesCard } from "./CurvesCard";
import { Picker } from "./Picker";
import { bestOf, columnsOf, isLowerBetter, sorted, type Compared } from "./table";

const route = getRouteApi("/frame/compare");
const DRAWN_FIRST = 8;
const DRAWN_MAX = 16;

export default function ComparePage() {
  useTitle("Compare");
  const { jobs: wanted = "", group = "" } = route.useSearch();
  const named = useMemo(() => (group ? [] : wanted.split(",").filter(Boolean)), [group, wanted]);
  const { data, error, hasNextPage, isFetching, fetchNextPage } = useInfiniteQuery(comparedQuery(group, named));
  useEffect(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  const jobs = useMemo(() => data?.pages.flatMap((page) => page.jobs) ?? [], [data]);
  return (
    <>
      <h1>Compare</h1>
      <p className="verdict">
        {group ? (
          <>
            Group <strong>{group}</strong>: {data ? counted(jobs.length, "job") : "…"}
            {hasNextPage ? ", more are read …" : "."}
          </>
        ) : named.length ? (
          <>{counted(named.length, "job")} side by side.</>
        ) : (
          "Which jobs?"
        )}
      </p>
      <Picker ids={named} group={group} key={group + wanted} />
      {error ? <Problem error={error} /> : null}
      {data && !jobs.length ? <Empty>There is no job of this group.</Empty> : null}
      {jobs.length ? <Shown jobs={jobs} /> : null}
    </>
  );
}

function Shown({ jobs }: { jobs: readonly Compared[] }) {
  const columns = useMemo(() => columnsOf(jobs), [jobs]);
  const measures = columns.filter((column) => column.kind === "value" && column.title !== "step");
  const { sort = "", best: measure = measures[0]?.title ?? "", better } = route.useSearch();
  const navigate = route.useNavigate();
  const isLower = better ? better === "low" : isLowerBetter(measure);
  const best = bestOf(jobs, measure, isLower);
  const order = sort || (measure ? `${isLower ? "" : "-"}v.${measure}` : "job");
  const rows = useMemo(() => sorted(jobs, columns, order, serverTime()), [jobs, columns, order]);
  const [chosen, setChosen] = useState<readonly string[] | null>(null);
  const drawn = chosen ?? rows.slice(0, DRAWN_FIRST).map((job) => job.id);
  const draw = (id: string) =>
    setChosen(drawn.includes(id) ? drawn.filter((other) => other !== id) : [...drawn, id].slice(-DRAWN_MAX));
  const change = (changes: { sort?: string | undefined; best?: string; better?: "low" | "high" | undefined }) =>
    void navigate({ to: "/compare", search: (known) => ({ ...known, ...changes }), replace: true });
  const aside = measures.length ? (
    <div className="row">
      <label className="row">
        <span className="quiet">Best</span>
        <select value={measure} onChange={(event) => change({ best: event.target.value, better: undefined })}>
          {measures.map((column) => (
            <option key={column.id}>{column.title}</option>
          ))}
        </select>
      </label>
      <select
        aria-label="What is better"
        value={isLower ? "low" : "high"}
        onChange={(event) => change({ better: event.target.value as "low" | "high" })}
      >
        <option value="low">the lowest</option>
        <option value="high">the highest</option>
      </select>
    </div>
  ) : null;
  return (
    <>
      <Card title="Parameters and results" aside={aside} note={said(jobs, measure, measures.length > 0)}>
        <ComparedTable
          jobs={rows}
          columns={columns}
          sort={order}
          best={best}
          drawn={drawn}
          onSort={(column) => change({ sort: nextSort(order, column) })}
          onDraw={draw}
        />
      </Card>
      <CurvesCard jobs={jobs} drawn={drawn} note={drawnNote(jobs.length, drawn.length)} />
    </>
  );
}

function said(jobs: readonly Compared[], measure: string, isMeasured: boolean): string {
  if (!isMeasured) return "None of them has reported a value; `skep.train` does so at each step.";
  const silent = jobs.filter((job) => typeof job.values[measure] !== "number").length;
  return `Values are those that each job reported last${silent ? `; ${counted(silent, "job")} reported no ${measure}` : ""}.`;
}

function drawnNote(all: number, drawn: number): string | undefined {
  return drawn < all ? `Of ${drawn} of ${counted(all, "job")}: those ticked above, at most ${DRAWN_MAX}.` : undefined;
}
