import { fitted } from "./drawMap";
import type { Bar, GanttRows } from "./ganttLayout";
import type { Colour, Palette } from "./palette";
import { ticks, toX, type Stretch } from "./timeScale";

export const AXIS = 20;

export interface GanttScene {
  rows: GanttRows;
  stretch: Stretch;
  now_s: number;
  width: number;
  /** Of the part that is seen; rows above `top` are scrolled away. */
  height: number;
  top: number;
  rowHeight: number;
  labelWidth: number;
  colour: (bar: Bar) => Colour;
  hover: Bar | null;
}

export function drawGantt(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene): void {
  context.font = "11px system-ui, sans-serif";
  drawFuture(context, palette, scene);
  drawTicks(context, palette, scene);
  context.save();
  context.beginPath();
  context.rect(0, AXIS, scene.width, scene.height - AXIS);
  context.clip();
  drawLabels(context, palette, scene);
  context.beginPath();
  context.rect(scene.labelWidth, AXIS, scene.width - scene.labelWidth, scene.height - AXIS);
  context.clip();
  for (const bar of scene.rows.bars) drawBar(context, palette, scene, bar);
  context.restore();
  drawNow(context, palette, scene);
}

export function xOf(scene: GanttScene, at_s: number): number {
  return scene.labelWidth + toX(scene.stretch, scene.width - scene.labelWidth, at_s);
}

function yOf(scene: GanttScene, row: number): number {
  return AXIS + row * scene.rowHeight - scene.top;
}

function drawFuture(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene): void {
  const x = Math.max(scene.labelWidth, xOf(scene, scene.now_s));
  if (x >= scene.width) return;
  context.fillStyle = palette.idle;
  context.fillRect(x, AXIS, scene.width - x, scene.height - AXIS);
}

function drawTicks(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene): void {
  context.textBaseline = "top";
  context.fillStyle = palette.quiet;
  context.strokeStyle = palette.grid;
  for (const tick of ticks(scene.stretch, scene.width - scene.labelWidth)) {
    const x = Math.round(xOf(scene, tick.at_s)) + 0.5;
    context.fillText(tick.label, x + 3, 3);
    line(context, x, 0, x, scene.height);
  }
}

function drawLabels(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene): void {
  context.textBaseline = "middle";
  context.strokeStyle = palette.rule;
  let free = -Infinity;
  for (const node of scene.rows.nodes) {
    const y = yOf(scene, node.first);
    const high = node.gpus * scene.rowHeight;
    if (y > scene.height || y + high < AXIS) continue;
    line(context, 0, Math.round(y) + 0.5, scene.width, Math.round(y) + 0.5);
    const middle = y + high / 2;
    if (middle - 6 < free) continue;
    context.fillStyle = palette.quiet;
    context.fillText(fitted(context, node.name, scene.labelWidth - 8), 0, middle);
    free = middle + 6;
  }
}

function drawBar(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene, bar: Bar): void {
  const y = yOf(scene, bar.row) + bar.from * scene.rowHeight;
  const high = Math.max(1, (bar.part < 1 ? bar.part : bar.rows) * scene.rowHeight - (scene.rowHeight > 4 ? 1 : 0));
  if (y > scene.height || y + high < AXIS) return;
  const left = Math.max(scene.labelWidth - 2, xOf(scene, bar.span.start_s));
  const right = Math.min(scene.width + 2, xOf(scene, bar.span.end_s ?? scene.now_s));
  if (right < scene.labelWidth || left > scene.width) return;
  const wide = Math.max(1.5, right - left);
  context.fillStyle = palette[scene.colour(bar)];
  context.fillRect(left, y, wide - (wide > 4 ? 1 : 0), high);
  if (bar.span === scene.hover?.span) {
    context.strokeStyle = palette.ink;
    context.strokeRect(left + 0.5, y + 0.5, wide - 1, high - 1);
  }
  if (high >= 11 && wide > 42) {
    context.fillStyle = palette.card;
    context.textBaseline = "middle";
    context.fillText(cut(context, bar.span.name || bar.span.job, wide - 8), left + 4, y + high / 2);
  }
}

function drawNow(context: CanvasRenderingContext2D, palette: Palette, scene: GanttScene): void {
  const x = Math.round(xOf(scene, scene.now_s)) + 0.5;
  if (x < scene.labelWidth || x > scene.width) return;
  context.strokeStyle = palette["mark-rule"];
  line(context, x, 0, x, scene.height);
  context.fillStyle = palette.quiet;
  context.textBaseline = "top";
  if (x + 26 < scene.width) context.fillText("now", x + 4, AXIS + 3);
}

function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let kept = text;
  while (kept && context.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return kept && `${kept}…`;
}

function line(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** What is under the pointer; the last drawn is on top. */
export function barAt(scene: GanttScene, x: number, y: number): Bar | null {
  if (x < scene.labelWidth || y < AXIS) return null;
  const row = (y - AXIS + scene.top) / scene.rowHeight;
  return (
    scene.rows.bars.findLast((bar) => {
      const inRow =
        bar.part < 1
          ? row >= bar.row + bar.from && row < bar.row + bar.from + bar.part
          : row >= bar.row && row < bar.row + bar.rows;
      return inRow && x >= xOf(scene, bar.span.start_s) - 2 && x <= xOf(scene, bar.span.end_s ?? scene.now_s) + 2;
    }) ?? null
  );
}
