import { ApiError, asError, type Schemas } from "./client";

/** A trace as it is, up to what the server takes. */
export async function uploadTrace(file: File): Promise<Schemas["Trace"]> {
  const name = file.name.replace(/[^A-Za-z0-9._-]/g, "_").replace(/^[^A-Za-z0-9]+/, "") || "trace.csv";
  const headers = { "Content-Type": "text/csv", "X-Requested-With": "skep" };
  const answer = await fetch(`/api/v1/traces?name=${encodeURIComponent(name)}`, {
    method: "POST",
    headers,
    body: file,
  }).catch(() => {
    throw new ApiError("the server does not answer", "it may be restarting", 0);
  });
  const body: unknown = await answer.json().catch(() => null);
  if (!answer.ok) throw asError(body, answer.status);
  return body as Schemas["Trace"];
}
