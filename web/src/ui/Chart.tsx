// Lines over time or steps, by uPlot. Names are drawn by React, so that none of them becomes markup.
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { readPalette, type Colour } from "../draw/palette";
import { useWidth } from "../draw/useCanvas";
import { amount, moment } from "../units";
import { useShade } from "./theme";

export interface Line {
  label: string;
  values: readonly (number | null | undefined)[];
  colour: Colour;
  isFilled?: boolean;
  isDashed?: boolean;
}

interface Props {
  label: string;
  x: readonly number[];
  lines: readonly Line[];
  isTime?: boolean;
  height?: number;
  fromZero?: boolean;
  xLabel?: string;
  format?: (value: number) => string;
  /** Lines go on across what they have no value for. */
  spanGaps?: boolean;
  /** Shows the same place in other charts that say the same. */
  together?: string;
}

export function Chart({
  label,
  x,
  lines,
  isTime = true,
  height = 190,
  fromZero = true,
  xLabel = "step",
  format = amount,
  spanGaps = false,
  together,
}: Props) {
  const [place, width] = useWidth<HTMLDivElement>();
  const shade = useShade();
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const shape = JSON.stringify(lines.map((line) => [line.label, line.colour, line.isFilled, line.isDashed]));
  const data = [x, ...lines.map((line) => line.values)] as unknown as uPlot.AlignedData;

  useEffect(() => {
    if (!place.current || width < 50) return;
    const options = makeOptions({
      width,
      height,
      lines,
      isTime,
      fromZero,
      format,
      spanGaps,
      together,
      onCursor: setAt,
    });
    plot.current = new uPlot(options, data, place.current);
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
    // Data alone is set below, without a new plot.
  }, [width, height, shade, shape, isTime, fromZero, together]);

  useEffect(() => plot.current?.setData(data), [x, lines]);

  const shown = at !== null && at < x.length ? at : x.length - 1;
  const where = x[shown];
  return (
    <figure className="chart" aria-label={label}>
      <figcaption>
        <ul className="keys">
          <li className="what">
            {where === undefined ? "nothing yet" : isTime ? moment(where) : `${xLabel} ${amount(where)}`}
          </li>
          {lines.map((line) => (
            <li key={line.label}>
              <span className={`key f${line.colour.slice(1)}`} />
              <span className="name">{line.label}</span>{" "}
              <b>{formatted(valueAt(line.values, shown, at === null), format)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={place} style={{ minHeight: height }} />
    </figure>
  );
}

/** The value at the pointer; without a pointer the last one. */
function valueAt(values: Line["values"], index: number, isLast: boolean): number | null | undefined {
  return isLast ? values.findLast((value) => value != null) : values[index];
}

function formatted(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

interface Wish {
  width: number;
  height: number;
  lines: readonly Line[];
  isTime: boolean;
  fromZero: boolean;
  format: (value: number) => string;
  spanGaps: boolean;
  together: string | undefined;
  onCursor: (index: number | null) => void;
}

function makeOptions(wish: Wish): uPlot.Options {
  const palette = readPalette();
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: palette.quiet, font, grid: { stroke: palette.grid, width: 1 }, ticks: { show: false } };
  return {
    width: wish.width,
    height: wish.height,
    padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: true, y: false },
      ...(wish.together ? { sync: { key: wish.together } } : {}),
    },
    scales: {
      x: { time: wish.isTime },
      y: wish.fromZero ? { range: (_, __, most) => [0, most > 0 ? most * 1.06 : 1] } : {},
    },
    axes: [
      { ...axis, ...(wish.isTime ? { values: timeLabels } : {}), space: 70, size: 26, gap: 4 },
      { ...axis, size: 46, gap: 4, space: 32, values: (_, splits) => splits.map((value) => wish.format(value)) },
    ],
    series: [
      {},
      ...wish.lines.map((line) => ({
        label: line.label,
        stroke: palette[line.colour],
        width: 1.75,
        spanGaps: wish.spanGaps,
        dash: line.isDashed ? [5, 4] : [],
        fill: line.isFilled ? faded(palette[line.colour]) : "transparent",
        points: { show: line.values.length === 1 },
      })),
    ],
    hooks: { setCursor: [(self) => wish.onCursor(self.cursor.idx ?? null)] },
  };
}

function timeLabels(_: uPlot, splits: number[]): string[] {
  const step = (splits[1] ?? 0) - (splits[0] ?? 0);
  return splits.map((at_s) => {
    const at = new Date(at_s * 1000);
    if (step >= 86400) return at.toLocaleDateString(undefined, { day: "numeric", month: "short" });
    const seconds = step < 60 ? { second: "2-digit" as const } : {};
    return at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...seconds });
  });
}

function faded(colour: string): string {
  return colour.replace("rgb(", "rgba(").replace(")", ", 0.14)");
}
