// Where each GPU of the map is drawn: racks as boxes, nodes within them, GPUs within nodes.
import type { Schemas } from "../api/client";

type ClusterMap = Schemas["Map"];

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface NodeBox extends Box {
  index: number;
  columns: number;
}
export interface GroupBox extends Box {
  label: string;
}
export interface MapLayout {
  size: number;
  gap: number;
  height: number;
  nodes: NodeBox[];
  groups: GroupBox[];
}

const NODE_LABEL = 13;
const NODE_GAP = 8;
const GROUP_PAD = 8;
const GROUP_LABEL = 18;
const SIZES = [26, 22, 18, 15, 12, 10, 8, 6] as const;
const HEIGHT_WANTED = 420;

/** The largest GPUs with which the map is not too high, or the smallest there are. */
export function layoutMap(map: ClusterMap, width: number): MapLayout {
  for (const size of SIZES) {
    const layout = layoutAt(map, width, size);
    if (layout.height <= HEIGHT_WANTED) return layout;
  }
  return layoutAt(map, width, SIZES[SIZES.length - 1] ?? 6);
}

function layoutAt(map: ClusterMap, width: number, size: number): MapLayout {
  const layout: MapLayout = { size, gap: size > 10 ? 2 : 1, height: 0, nodes: [], groups: [] };
  const groups = groupsOf(map);
  if (groups.length === 1 && groups[0]?.label === "") {
    layout.height = placeNodes(map, groups[0].nodes, layout, 0, 0, width);
    return layout;
  }
  let [x, y, rowHeight] = [0, 0, 0];
  for (const group of groups) {
    const inner = Math.min(width, naturalWidth(map, group.nodes, layout) + 2 * GROUP_PAD);
    if (x > 0 && x + inner > width) [x, y, rowHeight] = [0, y + rowHeight + NODE_GAP, 0];
    const bottom = placeNodes(map, group.nodes, layout, x + GROUP_PAD, y + GROUP_LABEL, inner - 2 * GROUP_PAD);
    const box = { label: group.label, x, y, width: inner, height: bottom - y + GROUP_PAD };
    layout.groups.push(box);
    x += inner + NODE_GAP;
    rowHeight = Math.max(rowHeight, box.height);
  }
  layout.height = y + rowHeight;
  return layout;
}

/** Nodes by the cell right above them, in the order of the map. */
export function groupsOf(map: ClusterMap): { label: string; nodes: number[] }[] {
  const groups = new Map<number, number[]>();
  map.nodes.forEach((node, index) => {
    const nodes = groups.get(node.cell);
    if (nodes) nodes.push(index);
    else groups.set(node.cell, [index]);
  });
  return [...groups].map(([cell, nodes]) => ({ label: cellLabel(map, cell), nodes }));
}

function cellLabel(map: ClusterMap, cell: number): string {
  const names: string[] = [];
  for (let at = map.cells[cell]; at; at = map.cells[at.parent]) names.unshift(at.name);
  return names.join(" / ");
}

function placeNodes(
  map: ClusterMap,
  nodes: number[],
  layout: MapLayout,
  left: number,
  top: number,
  width: number,
): number {
  let [x, y, rowHeight] = [left, top, 0];
  for (const index of nodes) {
    const box = nodeBox(map.nodes[index]?.gpus ?? 0, layout);
    if (x > left && x + box.width > left + width) [x, y, rowHeight] = [left, y + rowHeight + NODE_GAP, 0];
    layout.nodes.push({ ...box, index, x, y });
    x += box.width + NODE_GAP;
    rowHeight = Math.max(rowHeight, box.height);
  }
  return y + rowHeight;
}

function nodeBox(gpus: number, { size, gap }: MapLayout): Omit<NodeBox, "index" | "x" | "y"> {
  const columns = gpus <= 4 ? Math.max(1, gpus) : Math.ceil(gpus / 2);
  const rows = Math.max(1, Math.ceil(gpus / columns));
  const width = Math.max(columns * (size + gap) - gap, 34);
  return { columns, width, height: NODE_LABEL + rows * (size + gap) - gap };
}

function naturalWidth(map: ClusterMap, nodes: number[], layout: MapLayout): number {
  return nodes.reduce((sum, index) => sum + nodeBox(map.nodes[index]?.gpus ?? 0, layout).width + NODE_GAP, -NODE_GAP);
}

/** The box of GPU `gpu` of a node. */
export function gpuBox(node: NodeBox, gpu: number, { size, gap }: MapLayout): Box {
  const x = node.x + (gpu % node.columns) * (size + gap);
  const y = node.y + NODE_LABEL + Math.floor(gpu / node.columns) * (size + gap);
  return { x, y, width: size, height: size };
}

export interface Hit {
  node: number;
  /** -1: the node itself. */
  gpu: number;
}

export function hitTest(layout: MapLayout, map: ClusterMap, x: number, y: number): Hit | null {
  const box = layout.nodes.find(
    (node) => x >= node.x && x < node.x + node.width && y >= node.y && y < node.y + node.height,
  );
  if (!box) return null;
  const step = layout.size + layout.gap;
  const column = Math.floor((x - box.x) / step);
  const row = Math.floor((y - box.y - NODE_LABEL) / step);
  const gpu = row * box.columns + column;
  const isGpu = row >= 0 && column < box.columns && gpu < (map.nodes[box.index]?.gpus ?? 0);
  return { node: box.index, gpu: isGpu ? gpu : -1 };
}
