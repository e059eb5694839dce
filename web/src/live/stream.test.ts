import { describe, expect, it } from "vitest";

import { LiveStream, type Change, type Link, type Source, type World } from "./stream";

function change(seq: number, more: Partial<Change> = {}): Change {
  return { seq, resync: false, events: [], jobs: [], cluster: false, ...more };
}

/** A browser whose frames and timers come when the test says so. */
class FakeWorld implements World {
  opened: { url: string; source: Source & { readyState: number } }[] = [];
  frames: (() => void)[] = [];
  timers: (() => void)[] = [];

  open(url: string): Source {
    const source = { onopen: null, onerror: null, onmessage: null, readyState: 0, close: () => undefined };
    this.opened.push({ url, source });
    return source;
  }

  soon(then: () => void): void {
    this.frames.push(then);
  }

  later(then: () => void): () => void {
    this.timers.push(then);
    return () => (this.timers = this.timers.filter((timer) => timer !== then));
  }

  get last() {
    const found = this.opened.at(-1);
    if (!found) throw new Error("nothing was opened");
    return found;
  }

  say(message: Change): void {
    this.last.source.onmessage?.({ data: JSON.stringify(message) } as MessageEvent<string>);
  }

  frame(): void {
    for (const then of this.frames.splice(0)) then();
  }
}

function start() {
  const world = new FakeWorld();
  const batches: number[][] = [];
  const links: Link[] = [];
  let resyncs = 0;
  const stream = new LiveStream(
    "/changes",
    {
      onChanges: (changes) => batches.push(changes.map((one) => one.seq)),
      onResync: () => (resyncs += 1),
      onLink: (link) => links.push(link),
    },
    world,
  );
  stream.start();
  return { world, batches, links, stream, resyncs: () => resyncs };
}

describe("the stream of changes", () => {
  it("hands on once per frame what has come meanwhile", () => {
    const { world, batches } = start();
    world.say(change(1));
    world.say(change(2));
    expect(batches).toEqual([]);
    world.frame();
    world.say(change(3));
    world.frame();
    expect(batches).toEqual([[1, 2], [3]]);
  });

  it("reads everything again when the server says so, and when its numbers went back", () => {
    const { world, batches, resyncs } = start();
    world.say(change(5));
    world.say(change(9, { resync: true }));
    world.frame();
    expect([batches, resyncs()]).toEqual([[], 1]);
    world.say(change(2));
    expect(resyncs()).toBe(2);
  });

  it("goes on behind the last number when it has to open anew", () => {
    const { world, links, resyncs } = start();
    world.last.source.onopen?.({} as Event);
    world.say(change(7));
    world.last.source.readyState = 2;
    world.last.source.onerror?.({} as Event);
    expect(links.at(-1)).toBe("waiting");
    for (const timer of [...world.timers]) timer();
    expect(links).toContain("lost");
    expect(world.opened.map(({ url }) => url)).toEqual(["/changes", "/changes?after=7"]);
    expect(resyncs()).toBe(0);
    world.last.source.onopen?.({} as Event);
    expect(links.at(-1)).toBe("live");
    expect(resyncs()).toBe(1); // what was asked meanwhile has failed
  });

  it("leaves a broken connection to the browser, which comes back by itself", () => {
    const { world } = start();
    world.last.source.onerror?.({} as Event);
    for (const timer of [...world.timers]) timer();
    expect(world.opened).toHaveLength(1);
  });
});
