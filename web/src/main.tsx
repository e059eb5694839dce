import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/drawings.css";
import "./styles/pages.css";

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { ApiError } from "./api/client";
import { makeRouter } from "./router";
import { showTheme } from "./ui/theme";
import { Toasts } from "./ui/toasts";

const client = new QueryClient({
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
