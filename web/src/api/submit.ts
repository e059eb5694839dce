// Job files as text: tried, and submitted.
import { ApiError, asError, type Schemas } from "./client";

async function post<T>(address: string, text: string, signal?: AbortSignal): Promise<T> {
  const headers = { "Content-Type": "application/yaml", "X-Requested-With": "skep" };
  const answer = await fetch(address, { method: "POST", headers, body: text, signal: signal ?? null }).catch(
    (reason: unknown) => {
      if (reason instanceof DOMException && reason.name === "AbortError") throw reason;
      throw new ApiError("the server does not answer", "it may be restarting", 0);
    },
  );
  const body: unknown = await answer.json().catch(() => null);
  if (!answer.ok) throw asError(body, answer.status);
  return body as T;
}

export function submitText(text: string): Promise<Schemas["Submitted"]> {
  return post("/api/v1/jobs", text);
}

/** Submits nothing: what would be, or what is wrong. */
export function tryText(text: string, signal?: AbortSignal): Promise<Schemas["DryRun"]> {
  return post("/api/v1/jobs?dry_run=true", text, signal);
}
