// The colours of the style sheet, for canvases.
export const SERIES = 8;
const NAMES = [
  "ground",
  "card",
  "ink",
  "quiet",
  "rule",
  "grid",
  "axis",
  "idle",
  "mark-rule",
  "bad",
  "s0",
  "s1",
  "s2",
  "s3",
  "s4",
  "s5",
  "s6",
  "s7",
  "z0",
  "z1",
  "z2",
  "z3",
] as const;
export type Colour = (typeof NAMES)[number];
export type Palette = Record<Colour, string>;

/** As they are now: a variable may hold `light-dark(…)`, which only a real property resolves. */
export function readPalette(): Palette {
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (name: Colour): [Colour, string] => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  };
  const palette = Object.fromEntries(NAMES.map(read)) as Palette;
  probe.remove();
  return palette;
}

/** The same colour for the same place in a list. */
export function seriesColour(index: number): Colour {
  return `s${index % SERIES}` as Colour;
}

export const STATE_COLOURS: Record<string, Colour> = {
  launching: "s5",
  running: "s2",
  suspended: "s3",
  stopping: "s4",
  succeeded: "s0",
  failed: "bad",
  stopped: "s6",
  retried: "s1",
  preempted: "s4",
  "node-lost": "bad",
  moved: "s3",
  resized: "s7",
  pending: "quiet",
};
