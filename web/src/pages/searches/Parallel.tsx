import { useMemo } from "react";

import { useWidth } from "../../draw/useCanvas";
import { axesOf, crossings, type Trial } from "./parallel";

const HEIGHT = 280;
const TOP = 34;
const BELOW = 22;
const SIDE = 60;

/** A line for each trial; the best and the one that is pointed at stand out. */
export function Parallel({ trials, metric, marked }: { trials: readonly Trial[]; metric: string; marked: string | null }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const axes = useMemo(() => axesOf(trials, metric), [trials, metric]);
  const x = (index: number) => SIDE + (index * Math.max(width - 2 * SIDE, 0)) / Math.max(axes.length - 1, 1);
  const y = (at: number) => HEIGHT - BELOW - at * (HEIGHT - TOP - BELOW);
  return (
    <div ref={place} className="parallel">
      <svg width={width} height={HEIGHT} role="img" aria-label={`Parameters and ${metric} of ${trials.length} trials`}>
        {inOrder(trials, marked).map((trial) => (
          <path
            key={trial.id}
            data-trial={trial.id}
            data-best={trial.is_best || undefined}
            data-marked={trial.id === marked || undefined}
            data-state={trial.state}
            d={line(crossings(trial, axes), x, y)}
          >
            <title>{`${trial.id} ${trial.name}`}</title>
          </path>
        ))}
        {axes.map((axis, index) => (
          <g key={axis.title} transform={`translate(${x(index)},0)`}>
            <line y1={y(1)} y2={y(0)} />
            <text y={16} className="axis">
              {axis.title}
              {axis.isLog ? " (log)" : ""}
            </text>
            {axis.ticks.map((tick) => (
              <text key={tick.text} y={y(tick.at)} dx={6} dy={tick.at > 0.9 ? -4 : tick.at < 0.1 ? 14 : 4}>
                {tick.text}
              </text>
            ))}
          </g>
        ))}
      </svg>
    </div>
  );
}

/** What stands out is drawn last. */
function inOrder(trials: readonly Trial[], marked: string | null): Trial[] {
  const rank = (trial: Trial) => (trial.id === marked ? 2 : trial.is_best ? 1 : 0);
  return [...trials].sort((a, b) => rank(a) - rank(b));
}

function line(places: readonly (number | null)[], x: (index: number) => number, y: (at: number) => number): string {
  const points = places.flatMap((at, index) => (at === null ? [] : [`${x(index)},${y(at)}`]));
  return points.length ? `M${points.join("L")}` : "";
}
