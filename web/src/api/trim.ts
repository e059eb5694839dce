import type { Schemas } from "./client";

type History = Schemas["History"];

/** Without the time before the server first ran, of which nothing is known. */
export function trimmed(data: History): History {
  const first = data.gpus.findIndex((value) => value !== null);
  if (first <= 0) return data;
  const cut = <T>(values: T[]): T[] => values.slice(first);
  return {
    ...data, t: cut(data.t), gpus: cut(data.gpus), used: cut(data.used), lent: cut(data.lent), bad: cut(data.bad),
    drained: cut(data.drained), queue: cut(data.queue), queue_gpus: cut(data.queue_gpus),
    vcs: data.vcs.map((vc) => ({ ...vc, gpus: cut(vc.gpus), used: cut(vc.used), borrowed: cut(vc.borrowed), queue: cut(vc.queue) })),
  };
}
