// The cluster at a glance.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { mapQuery, overviewQuery, timelineQuery, vcsQuery } from "../../api/queries";
import { besideInTime, besideOnMap, colourJobs } from "../../draw/colouring";
import { Problem, Tile } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { amount, counted, duration, percent } from "../../units";
import type { Schemas } from "../../api/client";
import { EventsCard } from "./EventsCard";
import { FirstRun } from "./FirstRun";
import { HistoryCard } from "./HistoryCard";
import { MapCard } from "./MapCard";
import { TimelineCard } from "./TimelineCard";

type Overview = Schemas["Overview"];

export default function OverviewPage() {
  const { data, error } = useQuery(overviewQuery);
  const { data: map, isPending: waitsForMap } = useQuery(mapQuery);
  const { data: timeline, isPending: waitsForTimeline } = useQuery(timelineQuery(3600));
  const { isPending: waitsForVcs } = useQuery(vcsQuery);
  const jobColour = useMemo(
    () => colourJobs([...(map ? besideOnMap(map) : []), ...besideInTime(timeline?.spans ?? [])]),
    [map, timeline],
  );
  useTitle(data ? `${data.name || "Overview"}` : "Overview");
  const isFresh = data !== undefined && Object.values(data.jobs).every((count) => count === 0);
  return (
    <>
      <h1>{data ? `${data.name || "this cluster"} under ${data.policy}` : "Overview"}</h1>
      {error && !data ? <Problem error={error} /> : null}
      {data ? <Verdict data={data} /> : <p className="verdict">…</p>}
      {data && !waitsForMap && !waitsForTimeline && !waitsForVcs ? (
        <>
          {isFresh ? <FirstRun /> : <Tiles data={data} />}
          <MapCard jobColour={jobColour} />
          {isFresh ? null : <TimelineCard jobColour={jobColour} />}
          <HistoryCard />
          <EventsCard />
        </>
      ) : null}
    </>
  );
}

function Verdict({ data }: { data: Overview }) {
  const queue = data.jobs.pending;
  const half = data.waiting_now.p50_s;
  return (
    <p className="verdict">
      <strong>
        {amount(data.used)} of {counted(data.gpus, "GPU")}
      </strong>{" "}
      {data.used === 1 ? "is" : "are"} at work.{" "}
      {queue ? (
        <>
          <strong>{counted(queue, "job")}</strong> {queue === 1 ? "waits" : "wait"}
          {half === null ? "." : `${queue === 1 ? " for" : ", half of them for more than"} ${duration(half)}.`}
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
        what="GPUs on nodes out of use"
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
        what="Waited until the first start"
        value={duration(data.waiting.p50_s)}
        more={`half of the jobs; P90 ${duration(data.waiting.p90_s)}, ${counted(data.waiting.jobs, "job")} in 24 h`}
      />
    </dl>
  );
}
