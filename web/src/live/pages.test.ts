import { describe, expect, it } from "vitest";

import type { Job } from "./merge";
import { addEvents, merge } from "./merge";
import { isWanted, matches, patchPages, type Wanted } from "./pages";

export function job(id: number, more: Partial<Job> = {}): Job {
  return {
    id: String(id),
    name: `job-${id}`,
    state: "running",
    vc: "default",
    user: "ann",
    gpus: 1,
    priority: 10,
    submit_s: 0,
    start_s: 0,
    finish_s: null,
    reason: "",
    group: "",
    tags: [],
    attempts: 1,
    nodes: [],
    service_gpu_s: 0,
    waited_s: 0,
    ran_s: 0,
    held_gpus: 1,
    at_s: 0,
    progress: null,
    eta: null,
    ...more,
  } as Job;
}

const ALL: Wanted = { states: [], vc: "", user: "", q: "", group: "", all: false };
const by = (...jobs: Job[]) => new Map(jobs.map((one) => [one.id, one]));
const ids = (pages: { jobs: Job[] }[]) => pages.map((page) => page.jobs.map((one) => one.id));

describe("a list that is kept up to date", () => {
  const pages = [
    { jobs: [job(4), job(3)], next: "x" },
    { jobs: [job(2), job(1)], next: null },
  ];

  it("changes rows where they are and leaves other pages alone", () => {
    const patched = patchPages(pages, by(job(2, { priority: 99 })), ALL, true);
    expect(patched[1]?.jobs[0]?.priority).toBe(99);
    expect(patched[0]).toBe(pages[0]);
  });

  it("is not put back by an older answer", () => {
    const later = patchPages(pages, by(job(2, { priority: 99, at_s: 5 })), ALL, true);
    expect(patchPages(later, by(job(2, { priority: 1, at_s: 4 })), ALL, true)[1]?.jobs[0]?.priority).toBe(99);
  });

  it("puts new jobs in front, the newest first", () => {
    expect(ids(patchPages(pages, by(job(5), job(6)), ALL, true))).toEqual([
      ["6", "5", "4", "3"],
      ["2", "1"],
    ]);
  });

  it("does not guess where a new job belongs in another order", () => {
    expect(ids(patchPages(pages, by(job(5)), ALL, false))).toEqual(ids(pages));
  });

  it("does not take an old job that is not loaded yet for a new one", () => {
    expect(ids(patchPages(pages.slice(0, 1), by(job(1)), ALL, true))).toEqual([["4", "3"]]);
  });

  it("drops what no longer fits the filter", () => {
    const ended = by(job(3, { state: "succeeded" }));
    expect(ids(patchPages(pages, ended, ALL, true))).toEqual([["4"], ["2", "1"]]);
    expect(ids(patchPages(pages, ended, { ...ALL, all: true }, true))).toEqual([
      ["4", "3"],
      ["2", "1"],
    ]);
  });
});

describe("filters", () => {
  it.each([
    [{ states: ["failed"] }, false],
    [{ states: ["running"] }, true],
    [{ vc: "x" }, false],
    [{ user: "ann" }, true],
    [{ q: "JOB-7 an" }, true],
    [{ q: "job-8" }, false],
    [{ group: "g" }, false],
  ])("%o", (wanted, expected) => {
    expect(isWanted(job(7), { ...ALL, ...wanted })).toBe(expected);
  });

  it("finds words in tags too", () => {
    expect(matches(job(1, { tags: ["late night"] }), "night")).toBe(true);
  });
});

describe("batches", () => {
  it("keep the last word on each job", () => {
    const common = { seq: 1, resync: false, events: [], cluster: false };
    const batch = merge([
      { ...common, jobs: [job(1), job(2)] },
      { ...common, jobs: [job(1, { state: "failed" })], cluster: true },
    ]);
    expect([batch.jobs.get("1")?.state, batch.jobs.size, batch.cluster]).toEqual(["failed", 2, true]);
  });

  it("add events once, the newest first, and not without end", () => {
    const event = (seq: number) => ({ seq, at_s: 0, kind: "started", job_id: "1", name: "", who: "", text: "" });
    const known = [event(3), event(2)];
    expect(addEvents(known, [event(3), event(4), event(5)], 3).map(({ seq }) => seq)).toEqual([5, 4, 3]);
    expect(addEvents(known, [event(1)], 3)).toBe(known);
  });
});
