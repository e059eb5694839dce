// The time of the server, for what counts on while nothing happens; the reader's own clock may be wrong.
import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
/** Answers say the time in whole seconds, and take a while. */
const UNCERTAIN_S = 2;
let ahead_s = 0;
let now_s = Date.now() / 1000;
let timer: ReturnType<typeof setInterval> | undefined;

/** The time now, as the server has it. */
export function serverTime(): number {
  return Date.now() / 1000 + ahead_s;
}

/** From the `Date` of an answer. */
export function noteServerTime(date: string | null): void {
  const ahead = date === null ? NaN : Date.parse(date) / 1000 + 0.5 - Date.now() / 1000;
  if (Number.isFinite(ahead)) ahead_s = Math.abs(ahead) > UNCERTAIN_S ? ahead : 0;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (timer === undefined) now_s = serverTime();
  timer ??= setInterval(() => {
    now_s = serverTime();
    for (const tell of listeners) tell();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** Seconds since 1970, new every second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now_s);
}
