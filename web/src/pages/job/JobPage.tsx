// Everything about one job.
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Tabs } from "radix-ui";
import { useRef } from "react";

import { ApiError, type Schemas } from "../../api/client";
import { explainQuery, JOB_EVENTS_MAX, jobEventsQuery, jobQuery, mapQuery } from "../../api/queries";
import { hasEnded } from "../../live/pages";
import { EventList } from "../../ui/EventList";
import { Card, Empty, Fact, Problem, StateMark, Time } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { useWaitsForNames, Words } from "../../ui/Words";
import { useNow } from "../../ui/now";
import { amount, duration, gpuHours } from "../../units";
import { gpuHoursOf, ranOf, waitedOf } from "../jobs/times";
import { Actions } from "./Actions";
import { Attempts } from "./Attempts";
import { Configuration } from "./Configuration";
import { Curves } from "./Curves";
import { Fixes } from "./Fixes";
import { LastLines } from "./LastLines";
import { Logs } from "./Logs";
import { Placement } from "./Placement";
import { Verdict } from "./Verdict";

const route = getRouteApi("/frame/jobs/$id");
const TABS = [
  ["summary", "Summary"],
  ["logs", "Logs"],
  ["curves", "Curves"],
  ["configuration", "Configuration"],
  ["events", "Events"],
] as const;
const PROGRESS_MS = 4000;
const LATEST = `The latest ${JOB_EVENTS_MAX.toLocaleString("en")}; \`skep events\` has more.`;

export default function JobPage() {
  const { id } = route.useParams();
  const { data: job, error } = useQuery({
    ...jobQuery(id),
    // What a job says of its own progress is no event.
    refetchInterval: (query) => (query.state.data?.state === "running" ? PROGRESS_MS : false),
  });
  // By its number, as below: the address may have its name.
  const { data: why, isPending: waitsForWhy } = useQuery({ ...explainQuery(job?.id ?? id), enabled: job?.state === "pending" });
  const waitsForNames = useWaitsForNames(why?.reason ?? "");
  const shown = useRef("");
  const { isPending: waitsForMap } = useQuery(mapQuery);
  useTitle(job ? `${job.name} (${job.id})` : `Job ${id}`);
  if (error && (!job || (error instanceof ApiError && error.status === 404))) 
    return (
      <>
        <h1>Job {id}</h1>
        <Problem error={error} />
        <p>
          <Link to="/jobs" search={{ all: true }}>
            All jobs
          </Link>
        </p>
      </>
    );
  const waits = waitsForMap || (job?.state === "pending" && (waitsForWhy || waitsForNames));
  if (!job || (waits && shown.current !== id)) return <h1>Job {id}</h1>;
  shown.current = id;
  return <Shown job={job} key={job.id} />;
}

function Shown({ job }: { job: Schemas["JobDetail"] }) {
  const { tab = "summary" } = route.useSearch();
  const navigate = route.useNavigate();
  const open = (chosen: string) =>
    void navigate({ to: "/jobs/$id", params: { id: job.id }, search: chosen === "summary" ? {} : { tab: chosen }, replace: true });
  return (
    <>
      <div className="title">
        <h1 className="name" title={job.name}>
          Job {job.id} · {job.name}
        </h1>
        <Actions job={job} />
      </div>
      <Verdict job={job} />
      <Facts job={job} />
      {job.state === "pending" ? <Why id={job.id} /> : null}
      <Tabs.Root value={tab} onValueChange={open}>
        <Tabs.List className="tabs" aria-label="About this job">
          {TABS.map(([value, text]) => (
            <Tabs.Trigger key={value} value={value}>
              {text}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <Tabs.Content value="summary" tabIndex={-1}>
          {job.state === "failed" && job.start_s !== null ? (
            <LastLines job={job}>
              <Attempts job={job} />
              <Placement job={job} />
            </LastLines>
          ) : (
            <>
              <Attempts job={job} />
              <Placement job={job} />
            </>
          )}
        </Tabs.Content>
        <Tabs.Content value="logs" tabIndex={-1}>
          <Logs job={job} />
        </Tabs.Content>
        <Tabs.Content value="curves" tabIndex={-1}>
          <Curves job={job} />
        </Tabs.Content>
        <Tabs.Content value="configuration" tabIndex={-1}>
          <Configuration job={job} />
        </Tabs.Content>
        <Tabs.Content value="events" tabIndex={-1}>
          <JobEvents id={job.id} />
        </Tabs.Content>
      </Tabs.Root>
    </>
  );
}

function Facts({ job }: { job: Schemas["JobDetail"] }) {
  const now_s = useNow();
  return (
    <dl className="facts job-facts">
      <Fact what="State">
        <StateMark state={job.state} />
      </Fact>
      <Fact what="VC">
        <Link to="/jobs" search={{ vc: job.vc }}>
          {job.vc}
        </Link>
      </Fact>
      <Fact what="User">{job.user || "–"}</Fact>
      <Fact what="GPUs">{amount(job.gpus)}</Fact>
      <Fact what="Priority">{job.priority}</Fact>
      <Fact what="Submitted">
        <Time at_s={job.submit_s} />
      </Fact>
      <Fact what="Attempts">{job.attempts}</Fact>
      <Fact what="Waited">{duration(waitedOf(job, now_s))}</Fact>
      <Fact what="Ran">{duration(ranOf(job, now_s))}</Fact>
      <Fact what="GPU-hours">{gpuHours(gpuHoursOf(job, now_s))}</Fact>
      {job.nodes.length ? <Fact what="On">{job.nodes.join(", ")}</Fact> : null}
      {job.group ? (
        <Fact what="Group">
          <Link to="/compare" search={{ group: job.group }}>
            {job.group}
          </Link>
        </Fact>
      ) : null}
      {job.tags.length ? <Fact what="Tags">{job.tags.join(", ")}</Fact> : null}
      {hasEnded(job.state) ? (
        <Fact what="Ended">
          <Time at_s={job.finish_s} />
        </Fact>
      ) : null}
    </dl>
  );
}

/** Why a pending job waits, and what would change that. */
function Why({ id }: { id: string }) {
  const { data } = useQuery(explainQuery(id));
  if (!data) return null;
  return (
    <div className="hint why">
      <p>
        <b>Why it waits:</b> <Words text={data.reason} />
      </p>
      {data.remedy ? (
        <p className="quiet">
          What would change that: <Words text={data.remedy} /> <span className="tag">{data.cause}</span>
        </p>
      ) : null}
      <Fixes id={id} />
    </div>
  );
}

function JobEvents({ id }: { id: string }) {
  const { data, error } = useQuery(jobEventsQuery(id));
  return (
    <Card title="Events" note={data && data.length >= JOB_EVENTS_MAX ? LATEST : undefined}>
      {error ? <Problem error={error} /> : null}
      {data?.length ? (
        <EventList events={data.toReversed()} showJob={false} />
      ) : (
        <Empty>Nothing has happened yet.</Empty>
      )}
    </Card>
  );
}
