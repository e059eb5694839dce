// The cluster at a glance.
import { useQuery } from "@tanstack/react-query";

import { overviewQuery } from "../../api/queries";
import { Problem, Tile } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { amount, counted, duration, percent } from "../../units";
import type { Schemas } from "../../api/client";
import { EventsCard } from "./EventsCard";
import { HistoryCard } from "./HistoryCard";
import { MapCard } from "./MapCard";
import { TimelineCard } from "./TimelineCard";

type Overview = Schemas["Overview"];

export default function OverviewPage() {
  const { data, error } = useQuery(overviewQuery);
  useTitle(data ? `${data.name || "Overview"}` : "Overview");
  return (
    <>
      <h1>{data ? `${data.name || "this cluster"} under ${data.policy}` : "Overview"}</h1>
      {error && !data ? <Problem error={error} /> : null}
      {data ? <Verdict data={data} /> : <p className="verdict">…</p>}
      {data ? <Tiles data={data} /> : null}
      <MapCard />
      <TimelineCard />
      <HistoryCard />
      <EventsCard />
    </>
  );
}

function Verdict({ data }: { data: Overview }) {
  const queue = data.jobs.pending;
  return (
    <p className="verdict">
      <strong>
        {amount(data.used)} of {counted(data.gpus, "GPU")}
      </strong>{" "}
      {data.used === 1 ? "is" : "are"} at work.{" "}
      {queue ? (
        <>
          <strong>{counted(queue, "job")}</strong> {queue === 1 ? "waits" : "wait"}
          {data.waiting_now.p50_s === null ? "." : `, half of them for more than ${duration(data.waiting_now.p50_s)}.`}
        </>
      ) : (
        "No job waits."
      )}
    </p>
  );
}

function Tiles({ data }: { data: Overview }) {
  const running = data.jobs.running + data.jobs.launching + data.jobs.stopping;
  return (
    <dl className="tiles">
      <Tile
        what="GPUs used"
        value={percent(data.used, data.gpus)}
        more={`${amount(data.free)} free, ${amount(data.lent)} lent`}
      />
      <Tile
        what="GPUs out of use"
        value={amount(data.bad + data.drained)}
        more={`${data.bad} bad, ${data.drained} drained`}
      />
      <Tile
        what="Running"
        value={amount(running)}
        more={`${counted(data.jobs.succeeded, "job")} succeeded, ${data.jobs.failed} failed`}
      />
      <Tile what="Queue" value={amount(data.jobs.pending)} more={`${counted(data.queue_gpus, "GPU")} asked for`} />
      <Tile
        what="Waited, half of the jobs"
        value={duration(data.waiting.p50_s)}
        more={`P90 ${duration(data.waiting.p90_s)}, ${counted(data.waiting.jobs, "start")} in 24 h`}
      />
    </dl>
  );
}
