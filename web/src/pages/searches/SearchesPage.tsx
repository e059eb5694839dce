// Searches: which trials run on, which is the best, and why the others were paused or stopped.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { searchesQuery, searchQuery } from "../../api/queries";
import { Card, Empty, Problem, StateMark } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { useSay } from "../../ui/toasts";
import { counted, duration, gpuHours, measured } from "../../units";
import { CurvesCard } from "../compare/CurvesCard";
import { ranked, type Trial } from "./parallel";
import { Parallel } from "./Parallel";

const route = getRouteApi("/frame/searches");
type Search = Schemas["SearchDetail"];
const DRAWN = 8;

export default function SearchesPage() {
  useTitle("Searches");
  const { data: searches, error } = useQuery(searchesQuery);
  const { name = searches?.[0]?.name ?? "" } = route.useSearch();
  return (
    <>
      <h1>Searches</h1>
      {error ? <Problem error={error} /> : null}
      {searches?.length === 0 && !name ? (
        <Empty>
          There are no searches yet: a job file with <code>search</code> submits one.
        </Empty>
      ) : null}
      {searches?.length ? (
        <nav aria-label="Searches" className="row">
          {searches.map((each) => (
            <Link key={`${each.vc}/${each.user}/${each.name}`} to="/searches" search={{ name: each.name }}>
              {each.name} <span className="quiet">{each.state}</span>
            </Link>
          ))}
        </nav>
      ) : null}
      {name ? <OneSearch name={name} key={name} /> : null}
    </>
  );
}

function OneSearch({ name }: { name: string }) {
  const { data: search, error } = useQuery(searchQuery(name));
  const [marked, setMarked] = useState<string | null>(null);
  const rows = useMemo(() => (search ? ranked(search.trials, search.mode === "min") : []), [search]);
  const drawn = useMemo(() => rows.slice(0, DRAWN).map((trial) => trial.id), [rows]);
  if (error) return <Problem error={error} />;
  if (!search) return null;
  return (
    <>
      <Verdict search={search} />
      <Card title="Parameters and results" note="A line for each trial, from its parameters to what it reported last.">
        <Parallel trials={search.trials} metric={search.metric} marked={marked} />
      </Card>
      <Card title="Trials" aside={search.state === "running" ? <Stop name={search.name} /> : null}>
        <Trials rows={rows} metric={search.metric} onMark={setMarked} />
      </Card>
      <CurvesCard jobs={rows} drawn={drawn} keys={[search.metric]} note={`Of the best ${drawn.length} so far.`} />
    </>
  );
}

function Verdict({ search }: { search: Search }) {
  const best = search.trials.find((trial) => trial.is_best);
  const count = (state: string) => search.trials.filter((trial) => trial.state === state).length;
  const budget = search.gpu_hours ? ` of ${search.gpu_hours}` : "";
  return (
    <p className="verdict">
      <strong>{search.name}</strong> {search.state === "running" ? "is running" : "has ended"}: {counted(search.trials.length, "trial")},{" "}
      {count("running")} running, {count("paused")} paused, {count("stopped")} stopped. Rule {search.rule};{" "}
      {gpuHours(search.spent_gpu_hours)}
      {budget} GPU-hours used{search.deadline_s ? `, a deadline of ${duration(search.deadline_s)}` : ""}.{" "}
      {best ? (
        <>
          Best so far: <Link to="/jobs/$id" params={{ id: best.id }}>{`job ${best.id}`}</Link>, {search.metric}{" "}
          <strong>{measured(best.value)}</strong>.
        </>
      ) : (
        <>No trial has reported {search.metric} yet.</>
      )}
      {search.reason ? <> It ended because {search.reason}.</> : null}
    </p>
  );
}

function Trials({ rows, metric, onMark }: { rows: readonly Trial[]; metric: string; onMark: (id: string | null) => void }) {
  const keys = [...new Set(rows.flatMap((trial) => Object.keys(trial.parameters)))];
  return (
    <div className="trials" tabIndex={0} role="region" aria-label="Trials">
      <table>
        <thead>
          <tr>
            <th>trial</th>
            <th>state</th>
            <th>step</th>
            <th>{metric}</th>
            {keys.map((key) => (
              <th key={key}>{key}</th>
            ))}
            <th>why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((trial) => (
            <tr
              key={trial.id}
              data-trial={trial.id}
              data-best={trial.is_best || undefined}
              onMouseEnter={() => onMark(trial.id)}
              onMouseLeave={() => onMark(null)}
            >
              <td>
                <Link to="/jobs/$id" params={{ id: trial.id }} onFocus={() => onMark(trial.id)} onBlur={() => onMark(null)}>
                  {trial.id}
                </Link>
                {trial.is_best ? <b className="tag best">best</b> : null}
              </td>
              <td>
                <StateMark state={trial.state} />
              </td>
              <td>{trial.step ?? "–"}</td>
              <td>{measured(trial.value)}</td>
              {keys.map((key) => (
                <td key={key}>{trial.parameters[key] ?? "–"}</td>
              ))}
              <td className="why">{trial.why}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Stop({ name }: { name: string }) {
  const client = useQueryClient();
  const say = useSay();
  const stop = useMutation({
    mutationFn: () => asked(api.POST("/api/v1/searches/{name}/stop", { params: { path: { name } } })),
    onSettled: () => Promise.all(["search", "searches"].map((key) => client.invalidateQueries({ queryKey: [key] }))),
    onError: (error) => say(error.message, "bad"),
  });
  return <button disabled={stop.isPending} onClick={() => stop.mutate()}>{`Stop ${name}`}</button>;
}
