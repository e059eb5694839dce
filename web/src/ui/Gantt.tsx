// The timeline on a canvas: drag to move, Ctrl and wheel or the buttons to zoom, arrows and + − by keyboard.
import { useNavigate } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";

import type { Schemas } from "../api/client";
import { AXIS, barAt, drawGantt, type GanttScene } from "../draw/drawGantt";
import { layoutGantt, rowHeightOf, type Bar } from "../draw/ganttLayout";
import type { Colour } from "../draw/palette";
import { atFirst, moved, toTime, zoomed, type Stretch } from "../draw/timeScale";
import { useCanvas, useWidth } from "../draw/useCanvas";
import { amount, counted, duration, moment } from "../units";
import { useNow } from "./now";
import { Tip, type TipPlace } from "./Tip";

interface Props {
  label: string;
  spans: readonly Schemas["Span"][];
  nodes: readonly { name: string; gpus: number }[];
  /** What is shown at first; without an end, up to now. */
  from_s: number;
  to_s?: number | null;
  rowMax?: number;
  colour: (bar: Bar) => Colour;
  opensJobs?: boolean;
}

const HEIGHT_MAX = 460;
const LONGEST_S = 90 * 86400;

export function Gantt({ label, spans, nodes, from_s, to_s = null, rowMax = 18, colour, opensJobs = true }: Props) {
  const now_s = useNow();
  const [place, width] = useWidth<HTMLDivElement>();
  const [kept, setKept] = useState<Stretch | null>(null);
  const [top, setTop] = useState(0);
  const [pointed, setPointed] = useState<{ bar: Bar; at: TipPlace } | null>(null);
  const drag = useRef<{ x: number; stretch: Stretch; isMoved: boolean } | null>(null);
  const navigate = useNavigate();
  useEffect(() => setKept(null), [from_s, to_s]);

  const rows = useMemo(() => layoutGantt(spans, nodes), [spans, nodes]);
  const stretch = kept ?? atFirst(from_s, to_s, now_s);
  const rowHeight = rowHeightOf(rows, rowMax, HEIGHT_MAX - AXIS);
  const whole = AXIS + rows.count * rowHeight;
  const height = Math.max(AXIS + 30, Math.min(HEIGHT_MAX, whole));
  const hover = pointed?.bar ?? null;
  const scene: GanttScene = useMemo(() => {
    const labelWidth = width > 600 ? 84 : 52;
    return { rows, stretch, now_s, width, height, top, rowHeight, labelWidth, colour, hover };
  }, [rows, stretch.from_s, stretch.to_s, now_s, width, height, top, rowHeight, colour, hover]);
  const canvas = useCanvas(
    width,
    height,
    useCallback((context, palette) => drawGantt(context, palette, scene), [scene]),
  );

  const inner = width - scene.labelWidth;
  const zoom = (factor: number, around_s = (stretch.from_s + stretch.to_s) / 2) =>
    setKept(zoomed(stretch, factor, around_s, LONGEST_S));
  useEffect(() => {
    const element = canvas.current;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const x = event.clientX - element!.getBoundingClientRect().left - scene.labelWidth;
      zoom(event.deltaY > 0 ? 1.25 : 0.8, toTime(stretch, inner, x));
    };
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  });
  const keys = (event: KeyboardEvent) => {
    const step = (stretch.to_s - stretch.from_s) / 5;
    const done: Record<string, () => void> = {
      ArrowLeft: () => setKept(moved(stretch, -step)),
      ArrowRight: () => setKept(moved(stretch, step)),
      "+": () => zoom(0.7),
      "=": () => zoom(0.7),
      "-": () => zoom(1.4),
      Home: () => setKept(null),
    };
    const act = done[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const press = (event: PointerEvent<HTMLCanvasElement>) => {
    drag.current = { x: event.clientX, stretch, isMoved: false };
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const point = (event: PointerEvent<HTMLCanvasElement>) => {
    const from = drag.current;
    if (from && (from.isMoved || Math.abs(event.clientX - from.x) > 4)) {
      from.isMoved = true;
      const by_s = ((from.x - event.clientX) / inner) * (from.stretch.to_s - from.stretch.from_s);
      setKept(moved(from.stretch, by_s));
      setPointed(null);
      return;
    }
    const box = event.currentTarget.getBoundingClientRect();
    const bar = barAt(scene, event.clientX - box.left, event.clientY - box.top);
    setPointed(bar && { bar, at: { x: event.clientX, y: event.clientY } });
  };
  const release = () => {
    const from = drag.current;
    drag.current = null;
    if (from && !from.isMoved && pointed && opensJobs)
      void navigate({ to: "/jobs/$id", params: { id: pointed.bar.span.job } });
  };
  return (
    <div className="gantt">
      <div className="row gantt-tools">
        <button onClick={() => zoom(0.7)} aria-label="Zoom in">
          +
        </button>
        <button onClick={() => zoom(1.4)} aria-label="Zoom out">
          −
        </button>
        <button onClick={() => setKept(null)} disabled={kept === null}>
          Now
        </button>
      </div>
      <div
        className="gantt-rows"
        style={{ height }}
        ref={place}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        tabIndex={0}
        role="group"
        aria-label={`${label}: arrows move, + and − zoom`}
        onKeyDown={keys}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${label}: ${counted(spans.length, "stretch").replace("stretchs", "stretches")} of GPU use`}
          style={{ width, height }}
          onPointerDown={press}
          onPointerMove={point}
          onPointerUp={release}
          onPointerLeave={() => setPointed(null)}
        />
        {whole > height ? <div style={{ height: whole - height }} /> : null}
      </div>
      {pointed ? (
        <Tip at={pointed.at}>
          <SpanTip span={pointed.bar.span} now_s={now_s} />
        </Tip>
      ) : null}
    </div>
  );
}

function SpanTip({ span, now_s }: { span: Schemas["Span"]; now_s: number }) {
  const gpus = span.held.reduce((sum, held) => sum + (held.gpus.length * held.milli) / 1000, 0);
  return (
    <>
      <strong>
        {span.job} {span.name} {span.task}
      </strong>
      <div>
        <span>
          {span.vc} · {span.user || "–"}
        </span>
        <span>{amount(gpus)} GPUs</span>
      </div>
      <div>
        <span>
          {moment(span.start_s)} – {span.end_s === null ? "now" : moment(span.end_s)}
        </span>
        <span>{duration((span.end_s ?? now_s) - span.start_s)}</span>
      </div>
      <div>
        <span>attempt {span.attempt}</span>
        <span>{span.outcome}</span>
      </div>
    </>
  );
}
