import type { Schemas } from "../../api/client";
import { useNow } from "../../ui/now";
import { counted, duration } from "../../units";
import { progressOf, ranOf, waitedOf } from "../jobs/times";

/** How it stands, in one sentence. */
export function Verdict({ job }: { job: Schemas["JobDetail"] }) {
  const now_s = useNow();
  const progress = progressOf(job);
  const waited = duration(waitedOf(job, now_s));
  const ran = duration(ranOf(job, now_s));
  const last = job.history.at(-1);
  if (job.state === "pending") {
    const again = job.attempts ? ` again, after ${ran} of running in ${counted(job.attempts, "attempt")}; it has waited ${waited} in all` : `, for ${waited} so far`;
    return (
      <p className="verdict">
        It <strong>waits</strong>
        {again}.
      </p>
    );
  }
  if (job.state === "running") {
    return (
      <p className="verdict">
        It has been <strong>running</strong> for {ran}
        {job.attempts > 1 ? ` in ${counted(job.attempts, "attempt")}` : ""}, after {waited} of waiting
        {progress ? <>: {progress.text}</> : null}.
      </p>
    );
  }
  if (job.start_s === null)
    return (
      <p className="verdict">
        It has <strong>{job.state}</strong> without ever starting.
      </p>
    );
  const words: Record<string, string> = {
    launching: "is being launched",
    suspended: "is suspended",
    stopping: "is being stopped",
    succeeded: "has succeeded",
    failed: "has failed",
    stopped: "was stopped",
  };
  const phrase = job.state === "failed" && last?.phrase ? `: ${last.phrase}` : "";
  return (
    <p className="verdict">
      It <strong>{words[job.state] ?? job.state}</strong> after {ran} of running and {waited} of waiting{phrase}.
    </p>
  );
}
