import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/drawings.css";
import "./styles/pages.css";

import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { ApiError } from "./api/client";
import { makeRouter } from "./router";
import { showTheme } from "./ui/theme";
import { Toasts } from "./ui/toasts";

const client = new QueryClient({
  queryCache: new QueryCache({ onError: askAgain }),
  defaultOptions: {
    queries: {
      // The event stream says when something has changed.
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 3 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
    },
  },
});
const router = makeRouter(client);

/** A token that has been revoked or has expired meanwhile. */
function askAgain(error: Error): void {
  const { pathname, href } = router.state.location;
  if (error instanceof ApiError && error.status === 401 && pathname !== "/login") {
    void router.navigate({ to: "/login", search: { to: href } });
  }
}

showTheme();
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <Toasts>
          <RouterProvider router={router} />
        </Toasts>
      </QueryClientProvider>
    </StrictMode>,
  );
}
