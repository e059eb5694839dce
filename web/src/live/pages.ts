// A list of jobs that was read page by page, kept up to date by single rows.
import type { Job } from "./merge";

export interface Page {
  jobs: Job[];
  next: string | null;
}

export interface Wanted {
  states: readonly string[];
  vc: string;
  user: string;
  q: string;
  group: string;
  all: boolean;
}

const ENDED: readonly string[] = ["succeeded", "failed", "stopped"];

export function hasEnded(state: string): boolean {
  return ENDED.includes(state);
}

export function isWanted(job: Job, wanted: Wanted): boolean {
  if (wanted.states.length ? !wanted.states.includes(job.state) : !wanted.all && hasEnded(job.state)) return false;
  if (wanted.vc && job.vc !== wanted.vc) return false;
  if (wanted.user && job.user !== wanted.user) return false;
  if (wanted.group && job.group !== wanted.group) return false;
  return matches(job, wanted.q);
}

/** Every word must be somewhere in the row; as the API searches. */
export function matches(job: Job, q: string): boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [job.id, job.name, job.user, job.vc, job.group, ...job.tags].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/**
 * The pages with rows changed, taken out where they are no longer wanted, and, where the newest come first, new ones
 * put in front. Equal pages stay the same objects, so that nothing is drawn again for them.
 */
export function patchPages(
  pages: Page[],
  fresh: ReadonlyMap<string, Job>,
  wanted: Wanted,
  newestFirst: boolean,
): Page[] {
  const known = new Set<string>();
  const patched = pages.map((page) => patchPage(page, fresh, wanted, known));
  const first = patched[0];
  if (!newestFirst || !first) return patched;
  const newest = Math.max(0, ...first.jobs.slice(0, 1).map((job) => Number(job.id)));
  const added = [...fresh.values()].filter(
    (job) => !known.has(job.id) && Number(job.id) > newest && isWanted(job, wanted),
  );
  if (!added.length) return patched;
  added.sort((a, b) => Number(b.id) - Number(a.id));
  return [{ ...first, jobs: [...added, ...first.jobs] }, ...patched.slice(1)];
}

function patchPage(page: Page, fresh: ReadonlyMap<string, Job>, wanted: Wanted, known: Set<string>): Page {
  let isChanged = false;
  const jobs: Job[] = [];
  for (const job of page.jobs) {
    known.add(job.id);
    const found = fresh.get(job.id);
    // An answer may be older than what the stream has said since it was asked for.
    const now = found && found.at_s >= job.at_s ? found : undefined;
    if (now) isChanged = true;
    if (!now) jobs.push(job);
    else if (isWanted(now, wanted)) jobs.push(now);
  }
  return isChanged ? { ...page, jobs } : page;
}
