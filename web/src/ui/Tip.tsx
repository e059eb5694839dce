import { useLayoutEffect, useRef, useState, type ReactNode } from "react";

export interface TipPlace {
  x: number;
  y: number;
}

/** A note beside the pointer, kept inside the window. */
export function Tip({ at, children }: { at: TipPlace; children: ReactNode }) {
  const ref = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const box = ref.current?.getBoundingClientRect();
    if (box && (box.width !== size.width || box.height !== size.height))
      setSize({ width: box.width, height: box.height });
  });
  const left = Math.max(4, Math.min(at.x + 14, window.innerWidth - size.width - 8));
  const below = at.y + 16;
  const top = below + size.height > window.innerHeight ? at.y - size.height - 10 : below;
  return (
    <div className="tip" ref={ref} style={{ left, top }} aria-hidden="true">
      {children}
    </div>
  );
}
