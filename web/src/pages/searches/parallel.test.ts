import { describe, expect, it } from "vitest";

import { axesOf, axisOf, crossings, ranked, type Trial } from "./parallel";

function trial(id: string, parameters: Record<string, string>, value: number | null): Trial {
  return { id, name: `t-${id}`, parameters, state: "running", why: "", step: 1, value, rungs: [], is_best: false };
}

describe("axes", () => {
  it("places numbers in proportion", () => {
    const axis = axisOf("drop", ["0", "0.5", "0.25"]);
    expect([axis.place("0"), axis.place("0.25"), axis.place("0.5")]).toEqual([0, 0.5, 1]);
    expect(axis.isLog).toBe(false);
  });
  it("takes logarithms over more than two orders of magnitude", () => {
    const axis = axisOf("lr", ["0.0001", "0.01", "1"]);
    expect(axis.isLog).toBe(true);
    expect(axis.place("0.01")).toBeCloseTo(0.5);
  });
  it("places words at equal distances, and one value in the middle", () => {
    const axis = axisOf("opt", ["adam", "sgd", "adam", "lion"]);
    expect([axis.place("adam"), axis.place("sgd"), axis.place("lion")]).toEqual([0, 0.5, 1]);
    expect(axisOf("one", ["7", "7"]).place("7")).toBe(0.5);
    expect(axisOf("none", [null]).place(null)).toBe(null);
  });
});

describe("trials", () => {
  const trials = [trial("1", { lr: "0.1" }, 0.5), trial("2", { lr: "0.2" }, null), trial("3", { lr: "0.3" }, 0.1)];
  it("cross the axes of their parameters, and that of the metric once they have reported", () => {
    const axes = axesOf(trials, "loss");
    expect(axes.map((axis) => axis.title)).toEqual(["lr", "loss"]);
    expect(crossings(trials[0]!, axes)).toEqual([0, 1]);
    expect(crossings(trials[1]!, axes)[1]).toBe(null);
  });
  it("are ranked by the metric", () => {
    expect(ranked(trials, true).map((each) => each.id)).toEqual(["3", "1", "2"]);
    expect(ranked(trials, false).map((each) => each.id)).toEqual(["1", "3", "2"]);
  });
});
