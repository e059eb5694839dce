// The time, for what counts on while nothing happens.
import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let now_s = Date.now() / 1000;
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now_s = Date.now() / 1000;
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
