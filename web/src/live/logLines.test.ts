import { describe, expect, it } from "vitest";

import { clean, filterLines, isCut, LINES_MAX, LogLines } from "./logLines";

describe("log lines", () => {
  it("come in any pieces", () => {
    const log = new LogLines(false);
    for (const piece of ["1 on", "e\n2 tw", "o\n3 \n4 rest"]) log.add(piece);
    expect(log.lines.map(({ text }) => text)).toEqual(["one", "two", ""]);
    log.end();
    expect(log.lines.at(-1)).toEqual({ number: 4, task: "", text: "rest" });
  });

  it("say which task wrote them where there are several", () => {
    const log = new LogLines(true);
    log.add("worker-0  | 7 a | b\nworker-10 | 3 c\n");
    expect(log.lines).toEqual([
      { number: 7, task: "worker-0", text: "a | b" },
      { number: 3, task: "worker-10", text: "c" },
    ]);
  });

  it("say whether earlier ones are missing, of any task", () => {
    const first = { number: 1, task: "a", text: "" };
    const later = { number: 7, task: "b", text: "" };
    expect([isCut([]), isCut([first, { ...first, number: 2 }]), isCut([first, later])]).toEqual([false, false, true]);
  });

  it("are at most so many, and keep their numbers", () => {
    const log = new LogLines(false);
    log.add(Array.from({ length: LINES_MAX + 5 }, (_, index) => `${index + 1} x\n`).join(""));
    expect([log.lines.length, log.lines[0]?.number]).toEqual([LINES_MAX, 6]);
  });

  it("stay when a connection breaks, and none comes twice with the next one", () => {
    const first = new LogLines(true);
    first.add("a-0 | 1 one\na-0 | 2 two\nb-0 | 1 eins\n");
    const next = new LogLines(true, first.lines);
    expect(next.lines).toHaveLength(3);
    next.add("a-0 | 2 two\na-0 | 3 three\n");
    expect(next.lines.map(({ text }) => text)).toEqual(["one", "eins", "two", "three"]);
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
