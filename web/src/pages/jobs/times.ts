// What a row of a job says.
import type { Schemas } from "../../api/client";
import { amount, measured } from "../../units";

type Job = Schemas["Job"];

/** The server has added up all attempts at `at_s`; one that runs, or the waiting for the next, goes on since. */
function since(job: Job, now_s: number): number {
  return job.finish_s === null ? Math.max(0, now_s - job.at_s) : 0;
}

export function waitedOf(job: Job, now_s: number): number {
  return job.waited_s + (job.held_gpus === null ? since(job, now_s) : 0);
}

export function ranOf(job: Job, now_s: number): number {
  return job.ran_s + (job.held_gpus === null ? 0 : since(job, now_s));
}

export function gpuHoursOf(job: Job, now_s: number): number {
  return (job.service_gpu_s + (job.held_gpus ?? 0) * since(job, now_s)) / 3600;
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
