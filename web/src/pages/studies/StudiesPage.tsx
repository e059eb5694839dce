// Which policy would have been better: on an uploaded trace, or on what happened here.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { isUnderWay, policiesQuery, studiesQuery, tracesQuery } from "../../api/queries";
import { Card, Empty, Meter, Problem, StateMark, Time } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { useSay } from "../../ui/toasts";
import { counted, duration, percent } from "../../units";
import { NewStudy } from "./NewStudy";

type Study = Schemas["Study"];

export default function StudiesPage() {
  useTitle("Studies");
  const { data: studies, error } = useQuery(studiesQuery);
  const isReady = [useQuery(policiesQuery), useQuery(tracesQuery)].every((query) => !query.isPending) && studies;
  const running = studies?.filter(isUnderWay).length ?? 0;
  const [report, setReport] = useState<Study | null>(null);
  return (
    <>
      <h1>Studies</h1>
      <p className="verdict">
        Which scheduler would have been better?{" "}
        {studies ? (
          <>
            {counted(studies.length, "study").replace("studys", "studies")}
            {running ? (
              <>
                , <strong>{running} under way</strong>
              </>
            ) : null}
            .
          </>
        ) : null}
      </p>
      {isReady ? <NewStudy /> : null}
      {error && !studies ? <Problem error={error} /> : null}
      {isReady ? (
        <Card title="All studies">
          {studies?.length === 0 ? <Empty>There are no studies yet.</Empty> : null}
          <ul className="studies">
            {studies?.map((study) => (
              <OneStudy key={study.id} study={study} onReport={() => setReport(study)} />
            ))}
          </ul>
        </Card>
      ) : null}
      {report ? <Report study={report} onClose={() => setReport(null)} /> : null}
    </>
  );
}

function OneStudy({ study, onReport }: { study: Study; onReport: () => void }) {
  const client = useQueryClient();
  const say = useSay();
  const again = () => client.invalidateQueries({ queryKey: ["studies"] });
  const path = { params: { path: { id: study.id } } };
  const cancel = useMutation({
    mutationFn: () => asked(api.POST("/api/v1/studies/{id}/cancel", path)),
    onSettled: again,
    onError: (error) => say(error.message, "bad"),
  });
  const remove = useMutation({
    mutationFn: () => asked(api.DELETE("/api/v1/studies/{id}", path)),
    onSettled: again,
    onError: (error) => say(error.message, "bad"),
  });
  return (
    <li data-study={study.id}>
      <div className="row">
        <b>{study.name || study.trace_name}</b>
        <StateMark state={study.state} />
        {isUnderWay(study) ? (
          <Meter share={study.progress} label={`${Math.round(100 * study.progress)}% done`} />
        ) : null}
        <span className="quiet grow">
          {study.trace_name} on {study.cluster || "this cluster"} · <Time at_s={study.created_s} />
          {study.user ? ` · ${study.user}` : ""}
        </span>
        {study.state === "done" ? (
          <button className="main" onClick={onReport}>
            Report
          </button>
        ) : null}
        {isUnderWay(study) ? (
          <button disabled={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel
          </button>
        ) : (
          <button disabled={remove.isPending} onClick={() => remove.mutate()}>
            Remove
          </button>
        )}
      </div>
      {study.error ? <p className="problem">{study.error}</p> : null}
      <div className="scroll" tabIndex={0} role="region" aria-label={`Results of ${study.name || study.trace_name}`}>
        <table>
          <thead>
            <tr>
              <th>Policy</th>
              <th className="number">Done</th>
              <th className="number">JCT average</th>
              <th className="number">P50</th>
              <th className="number">P90</th>
              <th className="number" title="Time without GPUs from submission to end, also after preemptions">
                Waiting average
              </th>
              <th className="number">P50</th>
              <th className="number">P90</th>
              <th className="number" title="Nine of ten jobs first started within this time">
                First start P90
              </th>
              <th className="number">Makespan</th>
              <th className="number" title="GPU time that jobs held, of all there was">
                Held
              </th>
              <th className="number" title="The same without restarts and the copying of memory">
                Busy
              </th>
              <th className="number" title="GPU time of work that was kept, at most the busy time">
                Useful
              </th>
              <th className="number">Preempted</th>
            </tr>
          </thead>
          <tbody>
            {study.parts.map((part) => (
              <PartRow key={part.policy} part={part} />
            ))}
          </tbody>
        </table>
      </div>
    </li>
  );
}

const part1 = (part: number | null | undefined) => (part == null ? "–" : percent(part, 1));

function PartRow({ part }: { part: Schemas["StudyPart"] }) {
  const { summary } = part;
  return (
    <tr>
      <th scope="row">
        {part.policy}
        {summary?.oracle ? <span className="quiet"> knows durations: a bound</span> : null}
      </th>
      <td className="number">{part.jobs ? percent(part.done, part.jobs) : "–"}</td>
      <td className="number">{duration(summary?.jct_avg_s)}</td>
      <td className="number">{duration(summary?.jct_p50_s)}</td>
      <td className="number">{duration(summary?.jct_p90_s)}</td>
      <td className="number">{duration(summary?.queue_avg_s)}</td>
      <td className="number">{duration(summary?.queue_p50_s)}</td>
      <td className="number">{duration(summary?.queue_p90_s)}</td>
      <td className="number">{duration(summary?.first_wait_p90_s)}</td>
      <td className="number">{duration(summary?.makespan_s)}</td>
      <td className="number">{part1(summary?.utilization)}</td>
      <td className="number">{part1(summary?.busy)}</td>
      <td className="number">{part1(summary?.fre)}</td>
      <td className="number">{summary?.preemptions ?? "–"}</td>
    </tr>
  );
}

/** The page that `skep compare` writes, kept apart from this one: it may run its own scripts and reach nothing here. */
function Report({ study, onClose }: { study: Study; onClose: () => void }) {
  const address = `/api/v1/studies/${study.id}/report`;
  const aside = (
    <div className="row">
      <a className="button" href={address} target="_blank" rel="noreferrer">
        Open alone
      </a>
      <button onClick={onClose}>Close</button>
    </div>
  );
  return (
    <Card title={`Report: ${study.name || study.trace_name}`} aside={aside} id="report">
      <iframe className="report" src={address} sandbox="allow-scripts" title="Report" />
    </Card>
  );
}
