import { describe, expect, it } from "vitest";

import { clean, filterLines, LINES_MAX, LogLines } from "./logLines";

describe("log lines", () => {
  it("come in any pieces", () => {
    const log = new LogLines(false);
    for (const piece of ["on", "e\ntw", "o\n\nrest"]) log.add(piece);
    expect(log.lines.map(({ text }) => text)).toEqual(["one", "two", ""]);
    log.end();
    expect(log.lines.at(-1)).toEqual({ number: 4, task: "", text: "rest" });
  });

  it("say which task wrote them where there are several", () => {
    const log = new LogLines(true);
    log.add("worker-0  | a | b\nworker-10 | c\nno label\n");
    expect(log.lines.map(({ task, text }) => [task, text])).toEqual([
      ["worker-0", "a | b"],
      ["worker-10", "c"],
      ["", "no label"],
    ]);
  });

  it("are at most so many, and keep their numbers", () => {
    const log = new LogLines(false);
    log.add("x\n".repeat(LINES_MAX + 5));
    expect([log.lines.length, log.lines[0]?.number]).toEqual([LINES_MAX, 6]);
  });

  it("lose the colours of terminals and what a bar of progress wrote over", () => {
    expect(clean("\u001b[31mred\u001b[0m")).toBe("red");
    expect(clean("10%\r50%\r100%")).toBe("100%");
    expect(clean("windows\r")).toBe("windows");
  });

  it("stay text, whatever they look like", () => {
    expect(clean("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
  });

  it("are filtered by task and words", () => {
    const lines = [
      { number: 1, task: "a", text: "Loss 1" },
      { number: 2, task: "b", text: "loss 2" },
      { number: 3, task: "b", text: "x" },
    ];
    expect(filterLines(lines, "b", "LOSS").map(({ number }) => number)).toEqual([2]);
    expect(filterLines(lines, "", "")).toBe(lines);
  });
});
