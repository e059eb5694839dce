// Texts that the browser keeps; all that show one learn when it changes.
import { useCallback, useSyncExternalStore } from "react";

const listeners = new Set<() => void>();

export function useStored(storage: Storage, key: string): [text: string | null, set: (text: string | null) => void] {
  const text = useSyncExternalStore(subscribe, () => storage.getItem(key));
  const set = useCallback(
    (changed: string | null) => {
      if (changed === null) storage.removeItem(key);
      else storage.setItem(key, changed);
      for (const tell of listeners) tell();
    },
    [storage, key],
  );
  return [text, set];
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
