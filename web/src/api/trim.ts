import type { Schemas } from "./client";

type History = Schemas["History"];

/** Without the time before the server first ran, and with the last step up to its end. */
export function trimmed(data: History): History {
  const first = Math.max(
    0,
    data.gpus.findIndex((value) => value !== null),
  );
  const cut = <T>(values: T[]): T[] => {
    const last = values.at(-1);
    return last === undefined ? [] : [...values.slice(first), last];
  };
  const end = data.t.length ? [Math.max(data.until_s, (data.t.at(-1) ?? 0) + 1)] : [];
  return {
    ...data,
    t: [...data.t.slice(first), ...end],
    gpus: cut(data.gpus),
    used: cut(data.used),
    lent: cut(data.lent),
    bad: cut(data.bad),
    drained: cut(data.drained),
    queue: cut(data.queue),
    queue_gpus: cut(data.queue_gpus),
    vcs: data.vcs.map((vc) => ({
      ...vc,
      gpus: cut(vc.gpus),
      used: cut(vc.used),
      borrowed: cut(vc.borrowed),
      queue: cut(vc.queue),
    })),
  };
}
