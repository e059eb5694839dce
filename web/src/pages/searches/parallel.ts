// Parallel coordinates: an axis for each parameter and one for the metric, a line for each trial.
import type { Schemas } from "../../api/client";

export type Trial = Schemas["Trial"];

export interface Axis {
  title: string;
  /** From below (0) to above (1), with what is written there. */
  ticks: readonly { at: number; text: string }[];
  isLog: boolean;
  place: (value: string | number | null) => number | null;
}

const LOG_FROM = 100;
const WORDS_MAX = 12;

/** Numbers in proportion, over more than two orders of magnitude by their logarithms; words at equal distances. */
export function axisOf(title: string, values: readonly (string | number | null)[]): Axis {
  const known = values.filter((value) => value !== null && value !== "");
  const numbers = known.map(Number);
  if (known.length === 0 || numbers.some((number) => !Number.isFinite(number))) return wordsAxis(title, known.map(String));
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const isLog = low > 0 && high / low >= LOG_FROM;
  const scaled = (value: number) => (isLog ? Math.log(value) : value);
  const span = scaled(high) - scaled(low);
  const place = (value: string | number | null) =>
    value === null || value === "" || !Number.isFinite(Number(value))
      ? null
      : span > 0
        ? (scaled(Number(value)) - scaled(low)) / span
        : 0.5;
  const ticks = span > 0 ? [{ at: 0, text: brief(low) }, { at: 1, text: brief(high) }] : [{ at: 0.5, text: brief(low) }];
  return { title, ticks, isLog, place };
}

function wordsAxis(title: string, known: readonly string[]): Axis {
  const words = [...new Set(known)];
  const at = (index: number) => (words.length > 1 ? index / (words.length - 1) : 0.5);
  const ticks = words.length <= WORDS_MAX ? words.map((text, index) => ({ at: at(index), text })) : [];
  const place = (value: string | number | null) => {
    const index = value === null ? -1 : words.indexOf(String(value));
    return index < 0 ? null : at(index);
  };
  return { title, ticks, isLog: false, place };
}

function brief(value: number): string {
  return String(Number(value.toPrecision(3)));
}

export function axesOf(trials: readonly Trial[], metric: string): Axis[] {
  const keys = [...new Set(trials.flatMap((trial) => Object.keys(trial.parameters)))];
  const axes = keys.map((key) => axisOf(key, trials.map((trial) => trial.parameters[key] ?? null)));
  return [...axes, axisOf(metric, trials.map((trial) => trial.value))];
}

/** Where the line of a trial crosses each axis; null where it has no value. */
export function crossings(trial: Trial, axes: readonly Axis[]): (number | null)[] {
  return axes.map((axis, index) =>
    axis.place(index === axes.length - 1 ? trial.value : (trial.parameters[axis.title] ?? null)),
  );
}

/** The best first; trials without a value last. */
export function ranked(trials: readonly Trial[], isLower: boolean): Trial[] {
  const cost = (trial: Trial) => (trial.value === null ? Infinity : isLower ? trial.value : -trial.value);
  return [...trials].sort((a, b) => cost(a) - cost(b) || Number(a.id) - Number(b.id));
}
