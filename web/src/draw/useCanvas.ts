// A canvas as wide as its place, sharp on any screen, drawn again when what it shows or the theme changes.
import { useEffect, useLayoutEffect, useRef, useState } from "react";

import { useShade } from "../ui/theme";
import { readPalette, type Palette } from "./palette";

export type Draw = (context: CanvasRenderingContext2D, palette: Palette) => void;

/** The width of an element, kept up to date. */
export function useWidth<T extends HTMLElement>(): [React.RefObject<T | null>, number] {
  const ref = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

export function useCanvas(width: number, height: number, draw: Draw): React.RefObject<HTMLCanvasElement | null> {
  const ref = useRef<HTMLCanvasElement>(null);
  const shade = useShade();
  const palette = useRef<{ shade: string; palette: Palette } | null>(null);
  useEffect(() => {
    const canvas = ref.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || width <= 0) return;
    if (palette.current?.shade !== shade) palette.current = { shade, palette: readPalette() };
    const scale = globalThis.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, palette.current.palette);
  }, [width, height, draw, shade]);
  return ref;
}
