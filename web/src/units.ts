// Numbers as people read them; times in the reader's zone.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `42 s`, `3.5 min`, `4.2 h`, `3.5 d`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const value = Math.max(0, seconds);
  if (value < 99.5) return `${Math.round(value)} s`;
  if (value < 99.5 * MINUTE) return `${short(value / MINUTE)} min`;
  if (value < 2 * DAY) return `${short(value / HOUR)} h`;
  return `${short(value / DAY)} d`;
}

/** Two digits that count, no `.0`. */
export function short(value: number): string {
  return value < 9.95 ? String(Math.round(value * 10) / 10) : Math.round(value).toLocaleString("en");
}

/** A number of GPUs, or another amount: at most two decimals. */
export function amount(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: 2 });
}

/** Few of them are not none. */
export function gpuHours(value: number): string {
  return value > 0 && value < 0.01 ? "under 0.01" : amount(value);
}

/** A measured value, such as a loss: four digits that count. */
export function measured(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)}%` : "–";
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${short(count / 1e3)} kB` : `${short(count / 1e6)} MB`;
}

/** `1 job`, `2 jobs`. */
export function counted(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** `14:02:11`, with the day before it unless it is today. */
export function moment(at_s: number | null | undefined, now = new Date()): string {
  if (at_s == null) return "–";
  const at = new Date(at_s * 1000);
  const time = clock.format(at);
  return at.toDateString() === now.toDateString() ? time : `${day.format(at)} ${time}`;
}

/** With the zone, for titles. */
export function fullMoment(at_s: number): string {
  return full.format(new Date(at_s * 1000));
}
