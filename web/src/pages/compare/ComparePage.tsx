// Curves and parameters of several jobs, or of a sweep, side by side.
import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { curveQuery, jobQuery } from "../../api/queries";
import { seriesColour } from "../../draw/palette";
import { Chart } from "../../ui/Chart";
import { Choice } from "../../ui/Choice";
import { Card, Empty, Problem, StateMark } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { counted, duration, measured } from "../../units";
import { ranOf } from "../jobs/times";
import { align, byImportance } from "./curves";
import { differences } from "./parameters";
import { Picker } from "./Picker";
import { COMPARED_MAX } from "./search";

const route = getRouteApi("/frame/compare");
type JobDetail = Schemas["JobDetail"];
type Curve = Schemas["Curve"];

export default function ComparePage() {
  useTitle("Compare");
  const { jobs: wanted = "", group = "" } = route.useSearch();
  const ofGroup = useQuery({
    queryKey: ["group", group],
    queryFn: ({ signal }) =>
      asked(
        api.GET("/api/v1/jobs", { params: { query: { group, all: true, sort: "id", limit: COMPARED_MAX } }, signal }),
      ),
    enabled: group !== "",
  });
  const ids = group
    ? (ofGroup.data?.jobs.map((job) => job.id) ?? [])
    : wanted.split(",").filter(Boolean).slice(0, COMPARED_MAX);
  const found = useQueries({ queries: ids.map((id) => jobQuery(id)) });
  const curves = useQueries({ queries: ids.map((id) => ({ ...curveQuery(id), refetchInterval: 5000 })) });
  const jobs = found.flatMap((query) => (query.data ? [query.data] : []));
  const error = ofGroup.error ?? found.find((query) => query.error)?.error;
  return (
    <>
      <h1>Compare</h1>
      <p className="verdict">
        {group ? (
          <>
            Group <strong>{group}</strong>: {counted(ids.length, "job")} side by side.
          </>
        ) : ids.length ? (
          <>{counted(ids.length, "job")} side by side.</>
        ) : (
          "Which jobs?"
        )}
      </p>
      <Picker ids={ids} group={group} />
      {error ? <Problem error={error} /> : null}
      {jobs.length ? (
        <>
          <Parameters jobs={jobs} curves={curves.map((query) => query.data)} ids={ids} />
          <CurvesCard jobs={jobs} curves={curves.flatMap((query) => (query.data ? [query.data] : []))} />
        </>
      ) : null}
    </>
  );
}

function Parameters({ jobs, curves, ids }: { jobs: JobDetail[]; curves: (Curve | undefined)[]; ids: string[] }) {
  const [isAll, setAll] = useState<"differ" | "all">("differ");
  const rows = useMemo(
    () =>
      differences(
        jobs.map((job) => job.request),
        isAll === "all",
      ),
    [jobs, isAll],
  );
  const now_s = Date.now() / 1000;
  const aside = (
    <Choice
      label="Parameters"
      value={isAll}
      choices={[
        ["differ", "That differ"],
        ["all", "All"],
      ]}
      onChange={setAll}
    />
  );
  return (
    <Card title="Parameters" aside={aside}>
      <div className="scroll" tabIndex={0} role="region" aria-label="Parameters side by side">
        <table className="compare">
          <thead>
            <tr>
              <th>Job</th>
              {jobs.map((job) => (
                <th key={job.id} scope="col">
                  <span className={`key f${ids.indexOf(job.id) % 8}`} />{" "}
                  <Link to="/jobs/$id" params={{ id: job.id }}>
                    {job.id} {job.name}
                  </Link>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">state</th>
              {jobs.map((job) => (
                <td key={job.id}>
                  <StateMark state={job.state} />
                </td>
              ))}
            </tr>
            <tr>
              <th scope="row">ran</th>
              {jobs.map((job) => (
                <td key={job.id}>{duration(ranOf(job, now_s))}</td>
              ))}
            </tr>
            <tr>
              <th scope="row">last loss</th>
              {jobs.map((job) => (
                <td key={job.id}>{measured(lastOf(curves[ids.indexOf(job.id)], "loss"))}</td>
              ))}
            </tr>
            {rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">{row.name}</th>
                {row.values.map((value, index) => (
                  <td key={jobs[index]?.id} className="wrap">
                    {value || <span className="quiet">–</span>}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function lastOf(curve: Curve | undefined, key: string): number | null {
  return curve?.series.find((series) => series.key === key)?.value.findLast((value) => value !== null) ?? null;
}

function CurvesCard({ jobs, curves }: { jobs: JobDetail[]; curves: Curve[] }) {
  const keys = [...new Set(curves.flatMap((curve) => curve.keys))].map((key) => ({ key })).sort(byImportance);
  return (
    <Card title="Curves">
      {keys.length ? null : <Empty>None of them has reported anything.</Empty>}
      <div className="charts">
        {keys.map(({ key }) => (
          <OneChart key={key} name={key} jobs={jobs} curves={curves} />
        ))}
      </div>
    </Card>
  );
}

function OneChart({ name, jobs, curves }: { name: string; jobs: JobDetail[]; curves: Curve[] }) {
  const { x, lines } = useMemo(() => {
    const series = jobs.map((job) =>
      curves.find((curve) => curve.job === job.id)?.series.find((one) => one.key === name),
    );
    const aligned = align(series);
    const lines = jobs.map((job, index) => ({
      label: `${job.id} ${job.name}`,
      values: aligned.values[index] ?? [],
      colour: seriesColour(index),
      isDashed: index >= 8,
    }));
    return { x: aligned.x, lines };
  }, [name, jobs, curves]);
  return (
    <div>
      <h3>{name}</h3>
      <Chart
        label={`${name} by step`}
        x={x}
        lines={lines}
        isTime={false}
        fromZero={false}
        height={240}
        format={measured}
        spanGaps
        together="compare"
      />
    </div>
  );
}
