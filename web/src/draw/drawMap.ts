import type { Schemas } from "../api/client";
import { sharesByGpu, tenantsOf, type Tenant } from "./mapColours";
import { gpuBox, type Hit, type MapLayout, type NodeBox } from "./mapLayout";
import type { Colour, Palette } from "./palette";

type ClusterMap = Schemas["Map"];

export interface MapScene {
  map: ClusterMap;
  layout: MapLayout;
  colour: (gpu: number, tenant: Tenant) => Colour;
  /** Jobs to bring out; all others step back. */
  lit: ReadonlySet<string> | null;
  hover: Hit | null;
}

export function drawMap(context: CanvasRenderingContext2D, palette: Palette, scene: MapScene): void {
  const shares = sharesByGpu(scene.map);
  drawGroups(context, palette, scene.layout);
  context.font = "10.5px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const box of scene.layout.nodes) drawNode(context, palette, scene, box, shares);
}

function drawGroups(context: CanvasRenderingContext2D, palette: Palette, layout: MapLayout): void {
  context.font = "11.5px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const group of layout.groups) {
    context.strokeStyle = palette.rule;
    context.beginPath();
    context.roundRect(group.x + 0.5, group.y + 0.5, group.width - 1, group.height - 1, 6);
    context.stroke();
    context.fillStyle = palette.quiet;
    context.fillText(fitted(context, group.label, group.width - 16), group.x + 8, group.y + 4);
  }
}

function drawNode(
  context: CanvasRenderingContext2D,
  palette: Palette,
  scene: MapScene,
  box: NodeBox,
  shares: Map<number, Tenant[]>,
): void {
  const node = scene.map.nodes[box.index];
  if (!node) return;
  const isHovered = scene.hover?.node === box.index;
  context.fillStyle = isHovered ? palette.ink : node.state === "lost" ? palette.bad : palette.quiet;
  context.fillText(fitted(context, node.name, box.width), box.x, box.y);
  for (let gpu = 0; gpu < node.gpus; gpu++) {
    const { x, y, width, height } = gpuBox(box, gpu, scene.layout);
    context.globalAlpha = 1;
    context.fillStyle = palette.idle;
    context.fillRect(x, y, width, height);
    drawTenants(context, palette, scene, node.first + gpu, tenantsOf(scene.map, node.first + gpu, shares), x, y);
    context.globalAlpha = 1;
    if (node.state !== "up") drawOut(context, node.state === "lost" ? palette.bad : palette.s4, x, y, width);
    else outline(context, palette.axis, x, y, width, 0.35);
    if (isHovered && scene.hover?.gpu === gpu) outline(context, palette.ink, x, y, width, 1, 2);
  }
}

function drawTenants(
  context: CanvasRenderingContext2D,
  palette: Palette,
  scene: MapScene,
  gpu: number,
  tenants: Tenant[],
  x: number,
  y: number,
): void {
  const size = scene.layout.size;
  let bottom = y + size;
  for (const tenant of tenants) {
    const high = (size * Math.min(1000, tenant.milli)) / 1000;
    context.globalAlpha = scene.lit && !scene.lit.has(tenant.job.id) ? 0.15 : 1;
    context.fillStyle = palette[scene.colour(gpu, tenant)];
    context.fillRect(x, bottom - high, size, high);
    if (tenant.job.lent) dot(context, palette.card, x + size / 2, bottom - high / 2, Math.max(1.5, size / 7));
    bottom -= high;
  }
}

/** A borrowed GPU. */
function dot(context: CanvasRenderingContext2D, colour: string, x: number, y: number, radius: number): void {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

/** A GPU of a node that is lost or drained. */
function drawOut(context: CanvasRenderingContext2D, colour: string, x: number, y: number, size: number): void {
  outline(context, colour, x, y, size, 1);
  context.beginPath();
  context.moveTo(x + 1, y + size - 1);
  context.lineTo(x + size - 1, y + 1);
  context.stroke();
}

function outline(
  context: CanvasRenderingContext2D,
  colour: string,
  x: number,
  y: number,
  size: number,
  alpha: number,
  width = 1,
): void {
  context.globalAlpha = alpha;
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

/** As much of a name as fits, with its end, as names of nodes differ there. */
export function fitted(context: Pick<CanvasRenderingContext2D, "measureText">, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  for (let from = 1; from < text.length; from++) {
    const rest = `…${text.slice(from)}`;
    if (context.measureText(rest).width <= width) return rest;
  }
  return "";
}
