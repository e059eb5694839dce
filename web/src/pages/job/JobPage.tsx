// Everything about one job.
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { Tabs } from "radix-ui";

import { ApiError, type Schemas } from "../../api/client";
import { explainQuery, jobEventsQuery, jobQuery } from "../../api/queries";
import { hasEnded } from "../../live/pages";
import { EventList } from "../../ui/EventList";
import { Card, Empty, Fact, Problem, StateMark, Time } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { amount } from "../../units";
import { Actions } from "./Actions";
import { Attempts } from "./Attempts";
import { Configuration } from "./Configuration";
import { Curves } from "./Curves";
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

export default function JobPage() {
  const { id } = route.useParams();
  const { data: job, error } = useQuery({
    ...jobQuery(id),
    // What a job says of its own progress is no event.
    refetchInterval: (query) => (query.state.data?.state === "running" ? PROGRESS_MS : false),
  });
  useTitle(job ? `${job.name} (${job.id})` : `Job ${id}`);
  if (error && (!job || (error instanceof ApiError && error.status === 404))) return <Problem error={error} />;
  if (!job) return <h1>Job {id}</h1>;
  return <Shown job={job} key={job.id} />;
}

function Shown({ job }: { job: Schemas["JobDetail"] }) {
  const { tab = "summary" } = route.useSearch();
  const navigate = route.useNavigate();
  const open = (chosen: string) =>
    void navigate({ search: chosen === "summary" ? {} : { tab: chosen }, replace: true });
  return (
    <>
      <div className="title">
        <h1>
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
          <Attempts job={job} />
          <Placement job={job} />
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
  return (
    <dl className="facts job-facts">
      <Fact what="State">
        <StateMark state={job.state} />
      </Fact>
      <Fact what="VC">{job.vc}</Fact>
      <Fact what="User">{job.user || "–"}</Fact>
      <Fact what="GPUs">{amount(job.gpus)}</Fact>
      <Fact what="Priority">{job.priority}</Fact>
      <Fact what="Submitted">
        <Time at_s={job.submit_s} />
      </Fact>
      <Fact what="Attempts">{job.attempts}</Fact>
      <Fact what="GPU-hours">{amount(job.service_gpu_s / 3600)}</Fact>
      {job.nodes.length ? <Fact what="On">{job.nodes.join(", ")}</Fact> : null}
      {job.group ? <Fact what="Group">{job.group}</Fact> : null}
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
        <b>Why it waits:</b> {data.reason}
      </p>
      {data.remedy ? (
        <p className="quiet">
          What would change that: {data.remedy} <span className="tag">{data.cause}</span>
        </p>
      ) : null}
    </div>
  );
}

function JobEvents({ id }: { id: string }) {
  const { data, error } = useQuery(jobEventsQuery(id));
  return (
    <Card title="Events">
      {error ? <Problem error={error} /> : null}
      {data?.length ? (
        <EventList events={data.toReversed()} showJob={false} />
      ) : (
        <Empty>Nothing has happened yet.</Empty>
      )}
    </Card>
  );
}
