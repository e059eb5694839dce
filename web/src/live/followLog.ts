import { LogLines, type LogLine } from "./logLines";

export interface LogWish {
  id: string;
  /** 0: the last one. */
  attempt: number;
  isLabelled: boolean;
}

const AGAIN_MS = 2000;
const FIRST_LINES = 2000;

/** Reads a log and goes on while it grows; a broken connection is taken up again. `onLines` comes once per frame. */
export function followLog(wish: LogWish, onLines: (lines: LogLine[], isOver: boolean) => void): () => void {
  const stop = new AbortController();
  void (async () => {
    while (!stop.signal.aborted) {
      const isOver = await readOnce(wish, onLines, stop.signal).catch(() => false);
      if (isOver) return;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  })();
  return () => stop.abort();
}

async function readOnce(
  wish: LogWish,
  onLines: (lines: LogLine[], isOver: boolean) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const address = `/api/v1/jobs/${encodeURIComponent(wish.id)}/logs?follow=true&tail=${FIRST_LINES}&attempt=${wish.attempt}`;
  const answer = await fetch(address, { signal });
  if (answer.status >= 400 && answer.status < 500) {
    onLines([], true);
    return true;
  }
  if (!answer.ok || !answer.body) return false;
  const log = new LogLines(wish.isLabelled);
  let isDue = false;
  const tell = () => {
    isDue = false;
    if (!signal.aborted) onLines(log.lines, false);
  };
  onLines([], false);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    log.add(value);
    if (!isDue) {
      isDue = true;
      requestAnimationFrame(tell);
    }
  }
  log.end();
  onLines(log.lines, true);
  return true;
}
