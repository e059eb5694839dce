// Nodes: their GPUs, who is on them, how they are; taking them out of use.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Schemas } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { useMay } from "../../ui/may";
import { Empty, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { counted } from "../../units";
import { Drain } from "./Drain";
import { NodesTable } from "./NodesTable";

type Node = Schemas["Node"];

export default function NodesPage() {
  useTitle("Nodes");
  const { data: nodes, error } = useQuery(nodesQuery);
  const [words, setWords] = useState("");
  const [changing, setChanging] = useState<Node | null>(null);
  const may = useMay();
  const shown = (nodes ?? []).filter((node) => isLike(node, words));
  const out = (nodes ?? []).filter((node) => node.state !== "up").length;
  return (
    <>
      <h1>Nodes</h1>
      <p className="verdict">
        {nodes ? (
          <>
            <strong>{counted(nodes.length, "node")}</strong> with{" "}
            {counted(
              nodes.reduce((sum, node) => sum + node.gpus, 0),
              "GPU",
            )}
            ; {out ? <>{counted(out, "node")} out of use.</> : "all in use."}
          </>
        ) : (
          "…"
        )}
      </p>
      {error && !nodes ? <Problem error={error} /> : null}
      <search className="filters">
        <label className="field">
          <span>Search</span>
          <input
            type="search"
            value={words}
            placeholder="name, type, state, job"
            onChange={(event) => setWords(event.target.value)}
          />
        </label>
      </search>
      {shown.length ? (
        <NodesTable nodes={shown} onChange={may.administer ? setChanging : null} />
      ) : nodes ? (
        <Empty>No node matches.</Empty>
      ) : null}
      {changing ? <Drain node={changing} onClose={() => setChanging(null)} /> : null}
    </>
  );
}

function isLike(node: Node, words: string): boolean {
  const text = [node.name, node.state, node.gpu_type, ...node.within.map((cell) => cell.name), ...node.jobs.flat()]
    .join("\n")
    .toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
