// Addresses and their pages. Each page is loaded when it is first opened.
import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  redirect,
} from "@tanstack/react-router";

import { ApiError } from "./api/client";
import { meQuery } from "./api/queries";
import { Frame } from "./Frame";
import { readCompareSearch } from "./pages/compare/search";
import { readJobSearch } from "./pages/job/search";
import { readJobsSearch } from "./pages/jobs/search";
import { lazyPage } from "./ui/lazyPage";
import { Problem } from "./ui/parts";
import { NotFound } from "./ui/NotFound";

const root = createRootRouteWithContext<{ client: QueryClient }>()({});

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (search: Record<string, unknown>): { to?: string } =>
    typeof search.to === "string" ? { to: search.to } : {},
  component: lazyPage(() => import("./pages/login/LoginPage")),
});

/** All pages that show data of the cluster; users who are not logged in see the login page first. */
const frame = createRoute({
  getParentRoute: () => root,
  id: "frame",
  beforeLoad: async ({ context, location }) => {
    try {
      await context.client.ensureQueryData(meQuery);
    } catch (error) {
      if (error instanceof ApiError && error.status === 401)
        throw redirect({ to: "/login", search: { to: location.href } });
    }
  },
  component: Frame,
});

const overview = createRoute({
  getParentRoute: () => frame,
  path: "/",
  component: lazyPage(() => import("./pages/overview/OverviewPage")),
});
const jobs = createRoute({
  getParentRoute: () => frame,
  path: "/jobs",
  validateSearch: readJobsSearch,
  component: lazyPage(() => import("./pages/jobs/JobsPage")),
});
const job = createRoute({
  getParentRoute: () => frame,
  path: "/jobs/$id",
  validateSearch: readJobSearch,
  component: lazyPage(() => import("./pages/job/JobPage")),
});
const compare = createRoute({
  getParentRoute: () => frame,
  path: "/compare",
  validateSearch: readCompareSearch,
  component: lazyPage(() => import("./pages/compare/ComparePage")),
});
const submit = createRoute({
  getParentRoute: () => frame,
  path: "/submit",
  validateSearch: (search: Record<string, unknown>): { from?: string } =>
    search.from !== undefined ? { from: String(search.from) } : {},
  component: lazyPage(() => import("./pages/submit/SubmitPage")),
});
const vcs = createRoute({
  getParentRoute: () => frame,
  path: "/virtual-clusters",
  component: lazyPage(() => import("./pages/vcs/VcsPage")),
});
const nodes = createRoute({
  getParentRoute: () => frame,
  path: "/nodes",
  component: lazyPage(() => import("./pages/nodes/NodesPage")),
});
const policy = createRoute({
  getParentRoute: () => frame,
  path: "/policy",
  component: lazyPage(() => import("./pages/policy/PolicyPage")),
});
const searches = createRoute({
  getParentRoute: () => frame,
  path: "/searches",
  validateSearch: (search: Record<string, unknown>): { name?: string } =>
    search.name !== undefined && search.name !== "" ? { name: String(search.name) } : {},
  component: lazyPage(() => import("./pages/searches/SearchesPage")),
});
const studies = createRoute({
  getParentRoute: () => frame,
  path: "/studies",
  component: lazyPage(() => import("./pages/studies/StudiesPage")),
});

/** All other addresses, so that the way to the pages stays. */
const nowhere = createRoute({ getParentRoute: () => frame, path: "$", component: NotFound });

const tree = root.addChildren([
  login,
  frame.addChildren([overview, jobs, job, compare, submit, vcs, nodes, policy, searches, studies, nowhere]),
]);

export function makeRouter(client: QueryClient) {
  return createRouter({
    routeTree: tree,
    context: { client },
    defaultPreload: "intent",
    defaultNotFoundComponent: NotFound,
    defaultErrorComponent: ({ error }) => <Problem error={error} />,
    scrollRestoration: true,
    // As people write them: `?from=3`, not `?from=%223%22`.
    parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
    stringifySearch: (search) => {
      const said = Object.entries(search).flatMap(([key, value]) =>
        value === undefined ? [] : [[key, String(value)]],
      );
      return said.length ? `?${new URLSearchParams(said)}` : "";
    },
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
