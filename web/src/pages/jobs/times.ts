// What a row of a job says.
import type { Schemas } from "../../api/client";
import { amount, measured } from "../../units";

type Job = Schemas["Job"];

/** Until it first started, ended, or now. */
export function waitedOf(job: Job, now_s: number): number | null {
  return job.submit_s === null ? null : (job.start_s ?? job.finish_s ?? now_s) - job.submit_s;
}

/** Since it first started, until it ended or now. */
export function ranOf(job: Job, now_s: number): number | null {
  return job.start_s === null ? null : (job.finish_s ?? now_s) - job.start_s;
}

export interface Progress {
  /** 0 to 1, where the job said how many steps there are. */
  share: number | null;
  text: string;
}

export function progressOf(job: Job): Progress | null {
  const step = numberAt(job, "step");
  if (step === null) return null;
  const steps = numberAt(job, "steps");
  const loss = numberAt(job, "loss");
  const said = loss === null ? "" : `, loss ${measured(loss)}`;
  return {
    share: steps ? step / steps : null,
    text: `step ${amount(step)}${steps ? ` of ${amount(steps)}` : ""}${said}`,
  };
}

function numberAt(job: Job, key: string): number | null {
  const value = job.progress?.[key];
  return typeof value === "number" ? value : null;
}
