// What would let a waiting job start: lines of JSON, as the server finds them.
import { api, ApiError, asked, asError } from "./client";

export interface Fix {
  type: "fix";
  kind: "release" | "alter" | "priority" | "wait" | "undrain" | "node" | "stop";
  when: "now" | "sooner";
  text: string;
  effect: string;
  change: Record<string, string | number | boolean>;
  lost_gpu_s: number;
  delay_s: number | null;
}

export interface Tried {
  type: "tried";
  changes: number;
  seconds: number;
  cut: boolean;
  error: string;
}

export type Line = Fix | Tried;

/** The whole lines of a text that comes in pieces, and the rest. */
export function linesOf(text: string): [Line[], string] {
  const parts = text.split("\n");
  const rest = parts.pop() ?? "";
  return [parts.filter(Boolean).map((part) => JSON.parse(part) as Line), rest];
}

export async function* readChanges(id: string, signal: AbortSignal): AsyncGenerator<Line> {
  const response = await fetch(`/api/v1/jobs/${encodeURIComponent(id)}/changes`, { signal });
  if (!response.ok || !response.body) throw asError(await response.json().catch(() => null), response.status);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const [lines, left] = linesOf(rest + value);
    rest = left;
    yield* lines;
  }
}

/** Whether there is a request that makes the change. */
export function canBeMade(fix: Fix): boolean {
  return fix.kind !== "wait" && fix.kind !== "node";
}

export async function makeChange(id: string, fix: Fix): Promise<void> {
  if (fix.kind === "stop") {
    await asked(api.POST("/api/v1/jobs/{id}/stop", { params: { path: { id: String(fix.change.job) } }, body: { reason: `for job ${id}` } }));
  } else if (fix.kind === "undrain") {
    await asked(api.PATCH("/api/v1/nodes/{name}", { params: { path: { name: String(fix.change.node) } }, body: { state: "up" } }));
  } else if (canBeMade(fix)) {
    await asked(api.PATCH("/api/v1/jobs/{id}", { params: { path: { id } }, body: fix.change }));
  } else {
    throw new ApiError("this change cannot be made by a request", "", 0);
  }
}
