// A stretch of time on so many pixels.
export interface Stretch {
  from_s: number;
  to_s: number;
}

/** Room to the right of now, for what is to come. */
export const AHEAD = 0.12;

/** The last `seconds`, with room ahead. */
export function upTo(now_s: number, seconds: number): Stretch {
  return { from_s: now_s - seconds, to_s: now_s + (seconds * AHEAD) / (1 - AHEAD) };
}

const AT_FIRST_S = 5;

/** What is shown at first, without an end up to now. A shorter time would have no mark on the axis. */
export function atFirst(from_s: number, to_s: number | null, now_s: number): Stretch {
  if (to_s === null) return upTo(now_s, Math.max(AT_FIRST_S, now_s - from_s));
  return { from_s, to_s: Math.max(to_s, from_s + AT_FIRST_S) };
}

export function toX(stretch: Stretch, width: number, at_s: number): number {
  return ((at_s - stretch.from_s) / (stretch.to_s - stretch.from_s)) * width;
}

export function toTime(stretch: Stretch, width: number, x: number): number {
  return stretch.from_s + (x / width) * (stretch.to_s - stretch.from_s);
}

const SHORTEST_S = 10;

/** Longer (`factor` above 1) or shorter, with `around_s` staying where it is. */
export function zoomed(stretch: Stretch, factor: number, around_s: number, longest_s: number): Stretch {
  const length = stretch.to_s - stretch.from_s;
  const wanted = Math.min(longest_s, Math.max(SHORTEST_S, length * factor));
  const share = (around_s - stretch.from_s) / length;
  const from_s = around_s - share * wanted;
  return { from_s, to_s: from_s + wanted };
}

export function moved(stretch: Stretch, by_s: number): Stretch {
  return { from_s: stretch.from_s + by_s, to_s: stretch.to_s + by_s };
}

const STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

/** Round moments of the reader's clock, about `every` pixels apart. */
export function ticks(stretch: Stretch, width: number, every = 110): { at_s: number; label: string }[] {
  const wanted = ((stretch.to_s - stretch.from_s) * every) / Math.max(1, width);
  const step = STEPS_S.find((seconds) => seconds >= wanted) ?? 604800;
  const shift = new Date(stretch.from_s * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((stretch.from_s - shift) / step) * step + shift;
  const found = [];
  for (let at_s = first; at_s <= stretch.to_s; at_s += step) found.push({ at_s, label: tickLabel(at_s, step) });
  return found;
}

function tickLabel(at_s: number, step: number): string {
  const at = new Date(at_s * 1000);
  const isMidnight = at.getHours() === 0 && at.getMinutes() === 0 && at.getSeconds() === 0;
  if (step >= 86400 || isMidnight) return at.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  const seconds = step < 60 ? { second: "2-digit" as const } : {};
  return at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...seconds });
}
