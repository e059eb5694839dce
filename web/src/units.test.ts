import { expect, it } from "vitest";

import { amount, bytes, counted, duration, measured, moment, percent } from "./units";

it.each([
  [0, "0 s"],
  [42.4, "42 s"],
  [99, "99 s"],
  [150, "2.5 min"],
  [5400, "90 min"],
  [15_000, "4.2 h"],
  [300_000, "3.5 d"],
  [-3, "0 s"],
  [null, "–"],
  [Number.NaN, "–"],
])("a duration of %s s", (seconds, text) => expect(duration(seconds)).toBe(text));

it("amounts, shares, sizes", () => {
  expect([amount(1234.5678), amount(0.5), amount(null)]).toEqual(["1,234.57", "0.5", "–"]);
  expect([percent(1, 3), percent(1, 0)]).toEqual(["33%", "–"]);
  expect([bytes(999), bytes(28_000), bytes(2_800_000)]).toEqual(["999 B", "28 kB", "2.8 MB"]);
  expect([counted(1, "job"), counted(2000, "job")]).toEqual(["1 job", "2,000 jobs"]);
  expect([measured(0.85837), measured(1e-7), measured(0)]).toEqual(["0.8584", "1.00e-7", "0"]);
});

it("a moment has its day unless it is today", () => {
  const now = new Date(2026, 5, 2, 12, 0, 0);
  expect(moment(now.getTime() / 1000, now)).toBe("12:00:00");
  expect(moment(now.getTime() / 1000 - 86_400, now)).toMatch(/1.*12:00:00$/);
});
