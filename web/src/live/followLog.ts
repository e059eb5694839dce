import { api, asked } from "../api/client";
import { LogLines, type LogLine } from "./logLines";
import { hasEnded } from "./pages";

export interface LogWish {
  id: string;
  /** 0: the last one. */
  attempt: number;
  isLabelled: boolean;
}

/** `live`: lines come as they are written; `away`: the server does not answer; `over`: nothing more will be written. */
export type LogState = "live" | "away" | "over";
type OnLines = (lines: readonly LogLine[], state: LogState) => void;

const AGAIN_MS = 2000;
const FIRST_LINES = 2000;

/** Where the API has the log. */
export function logAddress(id: string, query: Record<string, string | number | boolean>): string {
  const words = Object.entries(query).map(([key, value]) => [key, String(value)]);
  return `/api/v1/jobs/${encodeURIComponent(id)}/logs?${new URLSearchParams(words)}`;
}

/** Reads a log and goes on while it grows; after a broken connection what was read stays. `onLines` comes once per frame. */
export function followLog(wish: LogWish, onLines: OnLines): () => void {
  const stop = new AbortController();
  void (async () => {
    let lines: readonly LogLine[] = [];
    const tell: OnLines = (found, state) => {
      lines = found;
      if (!stop.signal.aborted) onLines(found, state);
    };
    while (!stop.signal.aborted) {
      const isOver = await readOnce(wish, lines, tell, stop.signal).catch(() => false);
      tell(lines, isOver ? "over" : "away");
      if (isOver) return;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  })();
  return () => stop.abort();
}

async function readOnce(wish: LogWish, known: readonly LogLine[], onLines: OnLines, signal: AbortSignal): Promise<boolean> {
  const query = { follow: true, numbers: true, tail: FIRST_LINES, attempt: wish.attempt };
  const answer = await fetch(logAddress(wish.id, query), { signal });
  if (answer.status >= 400 && answer.status < 500) return true;
  if (!answer.ok || !answer.body) return false;
  const log = new LogLines(wish.isLabelled, known);
  let isDue = false;
  const tell = () => {
    isDue = false;
    if (!signal.aborted) onLines(log.lines, "live");
  };
  onLines(known, "live");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
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
  } finally {
    onLines(log.lines, "live");
  }
  return isOver(wish, signal);
}

/** A log also breaks off when the server stops: only the job says whether it has ended. */
async function isOver({ id, attempt }: LogWish, signal: AbortSignal): Promise<boolean> {
  const job = await asked(api.GET("/api/v1/jobs/{id}", { params: { path: { id } }, signal }));
  return hasEnded(job.state) || (attempt > 0 && attempt < job.attempts);
}

/** Some lines by number, or the last ones. */
export async function readLines(
  id: string,
  isLabelled: boolean,
  query: Record<string, string | number>,
  signal: AbortSignal,
): Promise<readonly LogLine[]> {
  const answer = await fetch(logAddress(id, { numbers: true, ...query }), { signal });
  if (!answer.ok) return [];
  const log = new LogLines(isLabelled);
  log.add(await answer.text());
  log.end();
  return log.lines;
}
