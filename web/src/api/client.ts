// How the API is asked. Types come from its schema: `python web/build.py check` writes `schema.d.ts`.
import createClient from "openapi-fetch";

import { noteServerTime } from "../ui/now";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? "http://localhost",
  // Another site can make a browser send our cookie, but not this header.
  headers: { "X-Requested-With": "skep" },
});

/** What the API says is wrong, in one line, and what to do about it. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly hint: string,
    readonly status: number,
  ) {
    super(message);
  }
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The answer, or the API's own words as an error. */
export async function asked<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer.catch((reason: unknown) => {
    if (reason instanceof DOMException && reason.name === "AbortError") throw reason;
    throw new ApiError("the server does not answer", "it may be restarting", 0);
  });
  noteServerTime(response.headers.get("date"));
  if (response.ok) return data as T;
  throw asError(error, response.status);
}

export function asError(body: unknown, status: number): ApiError {
  const said = typeof body === "object" && body !== null ? (body as Partial<Schemas["Error"]>) : {};
  return new ApiError(said.error ?? `the server answered ${status}`, said.hint ?? "", status);
}
