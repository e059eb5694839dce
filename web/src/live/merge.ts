// What a batch of changes means for what is shown.
import type { Schemas } from "../api/client";
import type { Change } from "./stream";

export type Job = Schemas["Job"];
export type Event = Schemas["Event"];

export interface Batch {
  /** The last word on each job. */
  jobs: Map<string, Job>;
  events: Event[];
  cluster: boolean;
}

export function merge(changes: Change[]): Batch {
  const jobs = new Map<string, Job>();
  const events: Event[] = [];
  let cluster = false;
  for (const change of changes) {
    for (const job of change.jobs) jobs.set(job.id, job);
    for (const event of change.events) events.push(event);
    cluster ||= change.cluster;
  }
  return { jobs, events, cluster };
}

/** The newest first, at most `most`, none twice. */
export function addEvents(known: Event[], fresh: Event[], most: number): Event[] {
  const newest = known[0]?.seq ?? 0;
  const added = fresh.filter((event) => event.seq > newest).sort((a, b) => b.seq - a.seq);
  return added.length ? [...added, ...known].slice(0, most) : known;
}
