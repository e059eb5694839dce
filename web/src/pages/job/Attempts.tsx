// How often it ran, where, and how each attempt ended.
import { useMemo } from "react";

import type { Schemas } from "../../api/client";
import type { Bar } from "../../draw/ganttLayout";
import { STATE_COLOURS, type Colour } from "../../draw/palette";
import { Gantt } from "../../ui/Gantt";
import { useNow } from "../../ui/now";
import { Card, Empty, StateMark, Time } from "../../ui/parts";
import { Words } from "../../ui/Words";
import { amount, duration } from "../../units";

type JobDetail = Schemas["JobDetail"];
type Attempt = Schemas["Attempt"];
type Span = Schemas["Span"];
const NONE: never[] = [];

export function Attempts({ job }: { job: JobDetail }) {
  const spans = useMemo(() => spansOf(job), [job]);
  const begin_s = job.submit_s ?? spans[0]?.start_s ?? 0;
  const end_s = job.finish_s === null ? null : job.finish_s + (job.finish_s - begin_s) * 0.03;
  if (!job.history.length) {
    return (
      <Card title="Attempts">
        <Empty>It has not started yet.</Empty>
      </Card>
    );
  }
  return (
    <Card title="Attempts">
      {spans.some((span) => span.held.length) ? (
        <Gantt
          label="Timeline of attempts"
          spans={spans}
          nodes={NONE}
          from_s={begin_s}
          to_s={end_s}
          rowMax={8}
          colour={outcomeColour}
          opensJobs={false}
        />
      ) : null}
      <div className="scroll" tabIndex={0} role="region" aria-label="Attempts">
        <table>
          <thead>
            <tr>
              <th className="number">Attempt</th>
              <th>Started</th>
              <th className="number">Ran</th>
              <th className="number">GPUs</th>
              <th>On</th>
              <th>Outcome</th>
              <th>What it says</th>
            </tr>
          </thead>
          <tbody>
            {job.history.toReversed().map((attempt) => (
              <Row key={`${attempt.task} ${attempt.launch}`} attempt={attempt} />
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Row({ attempt }: { attempt: Attempt }) {
  const now_s = useNow();
  const end_s = attempt.end_s ?? now_s;
  return (
    <tr>
      <td className="number">
        {attempt.task ? `${attempt.task} ` : ""}
        {attempt.launch}
      </td>
      <td>
        <Time at_s={attempt.start_s} />
      </td>
      <td className="number">{attempt.start_s === null ? "–" : duration(end_s - attempt.start_s)}</td>
      <td className="number">{amount(attempt.gpus)}</td>
      <td>{placesOf(attempt)}</td>
      <td>
        <StateMark state={attempt.outcome || "running"} />
      </td>
      <td className="wrap">
        <Words text={attempt.phrase} />
        {attempt.advice ? <span className="quiet"> {attempt.advice}</span> : null}
      </td>
    </tr>
  );
}

function placesOf(attempt: Attempt): string {
  if (!attempt.held.length) return attempt.nodes.join(", ");
  return attempt.held.map((held) => `${held.node}:${held.gpus.join(",")}`).join(" ");
}

function outcomeColour(bar: Bar): Colour {
  return STATE_COLOURS[bar.span.outcome] ?? "s6";
}

function spansOf(job: JobDetail): Span[] {
  return job.history.flatMap((attempt) =>
    attempt.start_s === null
      ? []
      : [
          {
            job: job.id,
            name: `attempt ${attempt.launch}`,
            vc: job.vc,
            user: job.user,
            task: attempt.task,
            attempt: attempt.launch,
            start_s: attempt.start_s,
            end_s: attempt.end_s,
            outcome: (attempt.outcome || "running") as Span["outcome"],
            held: attempt.held,
          },
        ],
  );
}
