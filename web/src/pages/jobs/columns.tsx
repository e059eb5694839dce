import { createColumnHelper, tableFeatures } from "@tanstack/react-table";
import { Link } from "@tanstack/react-router";

import type { Schemas } from "../../api/client";
import { hasEnded } from "../../live/pages";
import { useNow } from "../../ui/now";
import { Meter, StateMark } from "../../ui/parts";
import { amount, duration } from "../../units";
import { progressOf, ranOf, waitedOf } from "./times";

type Job = Schemas["Job"];

export const features = tableFeatures({});
const column = createColumnHelper<typeof features, Job>();

/** Ids of columns are what the API sorts by; `isNumber` and `width` are for the style. */
export const columns = column.columns([
  column.accessor("id", { header: "Job", cell: ({ row }) => <JobName job={row.original} /> }),
  column.accessor("state", { header: "State", cell: ({ row }) => <StateMark state={row.original.state} /> }),
  column.accessor("vc", { header: "VC", cell: ({ row }) => <Cut text={row.original.vc} /> }),
  column.accessor("user", { header: "User", cell: ({ row }) => <Cut text={row.original.user || "–"} /> }),
  column.accessor("gpus", { header: "GPUs", cell: ({ row }) => amount(row.original.gpus) }),
  column.accessor("priority", { header: "Priority", cell: ({ row }) => row.original.priority }),
  column.display({ id: "waited", header: "Waited", cell: ({ row }) => <Since job={row.original} of={waitedOf} /> }),
  column.display({ id: "ran", header: "Ran", cell: ({ row }) => <Since job={row.original} of={ranOf} /> }),
  column.display({ id: "progress", header: "Progress", cell: ({ row }) => <Progress job={row.original} /> }),
  column.accessor("reason", { header: "Reason", cell: ({ row }) => <Reason job={row.original} /> }),
]);

export const NUMBERS: ReadonlySet<string> = new Set(["gpus", "priority", "waited", "ran"]);
export const UNSORTED: ReadonlySet<string> = new Set(["progress", "reason"]);

function JobName({ job }: { job: Job }) {
  return (
    <Link to="/jobs/$id" params={{ id: job.id }} title={`${job.id} ${job.name}`}>
      <span className="quiet">{job.id}</span> {job.name}
    </Link>
  );
}

/** May be too long for its column; its title has all of it. */
function Cut({ text }: { text: string }) {
  return <span title={text}>{text}</span>;
}

function Reason({ job }: { job: Job }) {
  return <span title={job.reason}>{job.reason}</span>;
}

function Since({ job, of }: { job: Job; of: (job: Job, now_s: number) => number }) {
  return hasEnded(job.state) ? <>{duration(of(job, 0))}</> : <Counting job={job} of={of} />;
}

function Counting({ job, of }: { job: Job; of: (job: Job, now_s: number) => number }) {
  return <>{duration(of(job, useNow()))}</>;
}

function Progress({ job }: { job: Job }) {
  const progress = progressOf(job);
  if (!progress) return null;
  if (progress.share === null) return <>{progress.text}</>;
  const percent = `${Math.round(progress.share * 100)}%`;
  return (
    <span title={progress.text}>
      <Meter share={progress.share} label={progress.text} /> {percent}
    </span>
  );
}
