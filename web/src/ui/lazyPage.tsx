// Pages are loaded when they are first opened, or before that while there is nothing else to do. A page that cannot be
// loaded, because the server is away, says so and is tried again; the rest of the app stays.
import { useEffect, useState, type ComponentType, type FunctionComponent } from "react";

import { useLink } from "../live/LiveProvider";
import { Empty } from "./parts";

const waiting = new Set<() => Promise<unknown>>();
const RELOADED = "skep-reloaded";

export function lazyPage(load: () => Promise<{ default: ComponentType }>): FunctionComponent {
  let found: ComponentType | null = null;
  const get = async () => {
    found ??= (await load()).default;
    waiting.delete(get);
  };
  waiting.add(get);
  return function LazyPage() {
    const [Page, setPage] = useState<ComponentType | null>(() => found);
    const [isMissing, setMissing] = useState(false);
    const [tries, setTries] = useState(0);
    const link = useLink();
    useEffect(() => {
      if (Page) return;
      get().then(
        () => setPage(() => found),
        () => {
          setMissing(true);
          if (link === "live") reloadOnce();
        },
      );
    }, [Page, link, tries]);
    if (Page) return <Page />;
    if (!isMissing) return <div className="loading" aria-busy="true" />;
    return (
      <div role="alert">
        <Empty>
          This page could not be loaded: the server does not answer. It is tried again when the server is back.{" "}
          <button onClick={() => setTries(tries + 1)}>Try again</button>
        </Empty>
      </div>
    );
  };
}

/** Loads the pages that were not opened yet, so that they are there when the server is not. */
export function loadAhead(): void {
  const idle = globalThis.requestIdleCallback ?? ((then: () => void) => setTimeout(then, 500));
  idle(() => {
    for (const get of waiting) get().catch(() => undefined);
  });
}

/** The server is there, but not this part of the page: it serves a newer one. */
function reloadOnce(): void {
  const last = Number(sessionStorage.getItem(RELOADED) ?? 0);
  if (Date.now() - last < 60_000) return;
  sessionStorage.setItem(RELOADED, String(Date.now()));
  globalThis.location.reload();
}
