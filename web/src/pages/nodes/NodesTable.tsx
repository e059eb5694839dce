import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

import type { Schemas } from "../../api/client";
import { NodeRow } from "./NodeRow";

type Node = Schemas["Node"];

/** Only the nodes in sight are in the page. */
export function NodesTable({ nodes, onChange }: { nodes: Node[]; onChange: ((node: Node) => void) | null }) {
  const place = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: nodes.length,
    getScrollElement: () => place.current,
    estimateSize: () => 64,
    overscan: 6,
    getItemKey: (index) => nodes[index]?.name ?? index,
  });
  return (
    <div className="nodes" ref={place} tabIndex={0} role="region" aria-label="Nodes">
      <ul style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const node = nodes[item.index];
          return node ? (
            <li
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              data-node={node.name}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <NodeRow node={node} onChange={onChange} />
            </li>
          ) : null;
        })}
      </ul>
    </div>
  );
}
