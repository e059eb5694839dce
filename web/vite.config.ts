import { defineConfig } from "vite";

// `npm run dev` serves the sources and passes the API on to a `skep up`, which takes requests from its own origin only.
const server = process.env.SKEP_SERVER ?? "http://127.0.0.1:7437";

export default defineConfig({
  build: { target: "es2022", chunkSizeWarningLimit: 400, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/api": { target: server, changeOrigin: true, headers: { origin: server } } } },
});
