import { describe, expect, it } from "vitest";

import type { Schemas } from "../api/client";
import { besideInTime, colourJobs } from "./colouring";
import { layoutGantt, rowHeightOf, runs } from "./ganttLayout";
import { heat, sharesByGpu, tenantsOf } from "./mapColours";
import { gpuBox, groupsOf, hitTest, layoutMap } from "./mapLayout";
import { atFirst, ticks, toTime, toX, upTo, zoomed } from "./timeScale";

type ClusterMap = Schemas["Map"];

function makeMap(nodes: number, gpus = 8, perRack = 4): ClusterMap {
  const racks = Math.ceil(nodes / perRack);
  return {
    at_s: 0,
    seq: 1,
    cells: Array.from({ length: racks }, (_, rack) => ({ level: "rack", name: `r${rack}`, parent: -1 })),
    nodes: Array.from({ length: nodes }, (_, node) => ({
      name: `n${node}`,
      state: "up" as const,
      gpu_type: "v100",
      cell: Math.floor(node / perRack),
      first: node * gpus,
      gpus,
      inner: [],
    })),
    jobs: [
      { id: "1", name: "a", vc: "x", user: "u", state: "running", lent: false },
      { id: "2", name: "b", vc: "y", user: "u", state: "running", lent: true },
    ],
    gpus: Array.from({ length: nodes * gpus }, (_, gpu) => (gpu === 0 ? 0 : gpu === 1 ? -2 : -1)),
    shares: [
      { gpu: 1, job: 0, milli: 250 },
      { gpu: 1, job: 1, milli: 500 },
    ],
  };
}

describe("the map", () => {
  it("places every GPU inside the width, none over another", () => {
    for (const [nodes, width] of [
      [1, 400],
      [8, 1200],
      [125, 1200],
      [125, 360],
    ] as const) {
      const map = makeMap(nodes);
      const layout = layoutMap(map, width);
      const seen = new Set<string>();
      for (const node of layout.nodes) {
        for (let gpu = 0; gpu < 8; gpu++) {
          const box = gpuBox(node, gpu, layout);
          expect(box.x + box.width).toBeLessThanOrEqual(width + 1);
          expect(box.y + box.height).toBeLessThanOrEqual(layout.height + 1);
          seen.add(`${box.x} ${box.y}`);
        }
      }
      expect(seen.size).toBe(nodes * 8);
    }
  });

  it("finds what it has drawn", () => {
    const map = makeMap(12);
    const layout = layoutMap(map, 800);
    for (const node of layout.nodes) {
      const box = gpuBox(node, 5, layout);
      expect(hitTest(layout, map, box.x + 2, box.y + 2)).toEqual({ node: node.index, gpu: 5 });
    }
    expect(hitTest(layout, map, -5, -5)).toBeNull();
  });

  it("groups nodes by the cell above them", () => {
    expect(groupsOf(makeMap(6)).map(({ label, nodes }) => [label, nodes.length])).toEqual([
      ["r0", 4],
      ["r1", 2],
    ]);
  });

  it("knows the tenants of whole, shared and free GPUs", () => {
    const map = makeMap(1);
    const names = (gpu: number) => tenantsOf(map, gpu, sharesByGpu(map)).map(({ job, milli }) => [job.id, milli]);
    expect([names(0), names(1), names(2)]).toEqual([
      [["1", 1000]],
      [
        ["1", 250],
        ["2", 500],
      ],
      [],
    ]);
  });

  it("warms with use", () => {
    expect([0, 0.3, 0.6, 1].map(heat)).toEqual(["z0", "z1", "z2", "z3"]);
  });
});

function span(job: string, start_s: number, end_s: number | null, gpus: number[], milli = 1000): Schemas["Span"] {
  return {
    job,
    name: job,
    vc: "x",
    user: "u",
    task: "",
    attempt: 1,
    start_s,
    end_s,
    outcome: "running",
    held: [{ node: "n0", gpus, milli }],
  };
}

describe("the timeline", () => {
  it("draws neighbouring GPUs as one bar", () => {
    expect(runs([5, 0, 2, 1])).toEqual([
      [0, 3],
      [5, 1],
    ]);
    const { bars, count } = layoutGantt(
      [span("1", 0, 5, [0, 1, 3])],
      [
        { name: "m", gpus: 2 },
        { name: "n0", gpus: 4 },
      ],
    );
    expect([count, bars.map(({ row, rows }) => [row, rows])]).toEqual([
      6,
      [
        [2, 2],
        [5, 1],
      ],
    ]);
  });

  it("puts those who share a GPU below each other, and reuses the room of who has left", () => {
    const spans = [span("1", 0, 10, [0], 500), span("2", 5, 20, [0], 500), span("3", 12, null, [0], 500)];
    expect(layoutGantt(spans, []).bars.map(({ from, part }) => [from, part])).toEqual([
      [0, 0.5],
      [0.5, 0.5],
      [0, 0.5],
    ]);
  });

  it("has room for the name of a node with one GPU", () => {
    const one = layoutGantt([span("1", 0, 5, [0])], []);
    expect(rowHeightOf(one, 8, 440)).toBe(18);
    const many = layoutGantt([], [{ name: "n0", gpus: 8 }]);
    expect(rowHeightOf(many, 8, 440)).toBe(8);
    expect(rowHeightOf(layoutGantt([], Array.from({ length: 500 }, (_, at) => ({ name: `n${at}`, gpus: 1 }))), 8, 440)).toBe(3);
  });

  it("has marks for a job that ran less than a second", () => {
    for (const stretch of [atFirst(100.2, 100.4, 500), atFirst(499.9, null, 500)])
      expect(ticks(stretch, 800).length).toBeGreaterThan(3);
  });

  it("leaves room to the right of now", () => {
    const stretch = upTo(1000, 100);
    expect(toX(stretch, 500, 1000)).toBeCloseTo(440);
    expect(toTime(stretch, 500, toX(stretch, 500, 950))).toBeCloseTo(950);
  });

  it("zooms around the pointer, within limits", () => {
    const stretch = { from_s: 0, to_s: 100 };
    expect(zoomed(stretch, 0.5, 80, 1e6)).toEqual({ from_s: 40, to_s: 90 });
    expect(zoomed(stretch, 100, 50, 1000)).toEqual({ from_s: -450, to_s: 550 });
    const least = zoomed(stretch, 1e-9, 50, 1000);
    expect(least.to_s - least.from_s).toBe(10);
  });

  it("has a few round ticks", () => {
    const found = ticks({ from_s: 1003, to_s: 4603 }, 1000);
    expect(found.length).toBeGreaterThan(3);
    expect(found.every(({ at_s }) => at_s % 300 === 0)).toBe(true);
  });
});

describe("colours of jobs", () => {
  const spans = (...held: [job: string, gpu: number, from: number, to: number | null][]) =>
    held.map(([job, gpu, from, to]) => ({
      job,
      start_s: from,
      end_s: to,
      held: [{ node: "n", gpus: [gpu], milli: 1000 }],
    })) as unknown as Schemas["Span"][];

  it("differ between neighbours in time and on the next GPU", () => {
    const colour = colourJobs(besideInTime(spans(["1", 0, 0, 5], ["9", 0, 5, null], ["17", 1, 2, null])));
    expect(new Set(["1", "9", "17"].map(colour)).size).toBe(3);
  });

  it("are those of the job itself where nobody is beside it, and stay when others come", () => {
    const alone = colourJobs([]);
    expect([alone("3"), alone("11")]).toEqual(["s3", "s3"]);
    expect(colourJobs([["3", "11"]])("3")).toBe("s3");
    expect(colourJobs([["3", "11"]])("11")).not.toBe("s3");
  });

  it("avoid what looks alike while there is another", () => {
    expect(colourJobs([["8", "13"]])("13")).not.toBe("s5"); // two blues
  });
});
