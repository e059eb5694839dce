// What surrounds every page: the way to the others, who is asked for, whether the server is there.
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { DropdownMenu } from "radix-ui";

import { api, asked } from "./api/client";
import { meQuery } from "./api/queries";
import { LiveProvider, useLink } from "./live/LiveProvider";
import { loadAhead } from "./ui/lazyPage";
import { chooseTheme, chosenTheme, type Theme } from "./ui/theme";
import { useSay } from "./ui/toasts";

const PAGES = [
  ["/", "Overview"],
  ["/jobs", "Jobs"],
  ["/compare", "Compare"],
  ["/searches", "Searches"],
  ["/submit", "Submit"],
  ["/virtual-clusters", "Virtual clusters"],
  ["/nodes", "Nodes"],
  ["/policy", "Policy"],
  ["/studies", "Studies"],
] as const;

export function Frame() {
  const nav = useHereInSight();
  return (
    <LiveProvider>
      <a className="skip" href="#main">
        To the content
      </a>
      <header className="top">
        <div>
          <Link to="/" className="brand">
            <img src="/icon.svg" alt="" />
            Skep
          </Link>
          <nav aria-label="Pages" ref={nav}>
            <ul>
              {PAGES.map(([to, text]) => (
                <li key={to}>
                  <Link to={to} activeOptions={{ exact: to === "/", includeSearch: false }}>
                    {text}
                  </Link>
                </li>
              ))}
            </ul>
          </nav>
          <div className="corner">
            <LinkMark />
            <Corner />
          </div>
        </div>
        <Restarts />
      </header>
      <main id="main" tabIndex={-1}>
        <Outlet />
      </main>
    </LiveProvider>
  );
}

/** On a narrow screen the pages do not fit side by side: the one that is open is brought into sight. */
function useHereInSight() {
  const nav = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  useEffect(() => {
    const here = nav.current?.querySelector<HTMLElement>('[aria-current="page"]');
    if (!nav.current || !here) return;
    nav.current.scrollLeft = here.offsetLeft - (nav.current.clientWidth - here.offsetWidth) / 2;
  }, [path]);
  return nav;
}

function LinkMark() {
  const link = useLink();
  const words = { live: "live", waiting: "connecting", lost: "no connection" };
  return (
    <span className="link" data-state={link} role="status">
      {words[link]}
    </span>
  );
}

/** Says that the server is away, and that it came back. */
function Restarts() {
  const link = useLink();
  const say = useSay();
  const wasLost = useRef(false);
  useEffect(() => {
    if (link === "live") loadAhead();
    if (link === "lost") wasLost.current = true;
    if (link === "live" && wasLost.current) {
      wasLost.current = false;
      say("The server is back; what is shown is up to date.");
    }
  }, [link, say]);
  if (link !== "lost") return null;
  return (
    <div className="banner" role="alert">
      <p>The server does not answer. Jobs run on; this page reconnects by itself.</p>
    </div>
  );
}

function Corner() {
  const me = useQuery(meQuery).data;
  const [theme, setTheme] = useState<Theme>(chosenTheme);
  const navigate = useNavigate();
  const choose = (chosen: string) => {
    chooseTheme(chosen as Theme);
    setTheme(chosen as Theme);
  };
  const leave = async () => {
    await asked(api.DELETE("/api/v1/session"));
    await navigate({ to: "/login" });
    globalThis.location.reload();
  };
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger className="plain" aria-label="You and the look">
        {me?.user || (me?.auth === "token" ? "you" : "no login")} ▾
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content className="menu" align="end" sideOffset={4}>
          {me ? (
            <DropdownMenu.Label className="what">
              {me.auth === "none" ? "This server needs no token." : `${me.user}, role ${me.role}`}
              {me.vcs.length ? ` · VCs ${me.vcs.join(", ")}` : ""}
            </DropdownMenu.Label>
          ) : null}
          <DropdownMenu.RadioGroup value={theme} onValueChange={choose}>
            <DropdownMenu.RadioItem value="system">Same as the system</DropdownMenu.RadioItem>
            <DropdownMenu.RadioItem value="light">Light</DropdownMenu.RadioItem>
            <DropdownMenu.RadioItem value="dark">Dark</DropdownMenu.RadioItem>
          </DropdownMenu.RadioGroup>
          {me?.auth === "token" ? <DropdownMenu.Item onSelect={() => void leave()}>Log out</DropdownMenu.Item> : null}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}
