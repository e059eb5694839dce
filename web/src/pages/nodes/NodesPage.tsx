// Nodes: their GPUs, who is on them, how they are; taking them out of use.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Schemas } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { useMay } from "../../ui/may";
import { Empty, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { amount, counted } from "../../units";
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
  const out = (nodes ?? []).filter((node) => node.state !== "up");
  return (
    <>
      <h1>Nodes</h1>
      <p className="verdict">
        {nodes ? (
          <>
            <strong>
              {amount(sum(nodes, "used"))} of {counted(sum(nodes, "gpus"), "GPU")}
            </strong>{" "}
            used; {out.length ? <OutOfUse nodes={out} /> : "no node out of use."}
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
            placeholder="node, type, state, job"
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

function sum(nodes: readonly Node[], what: "used" | "gpus"): number {
  return nodes.reduce((total, node) => total + node[what], 0);
}

function OutOfUse({ nodes }: { nodes: readonly Node[] }) {
  const [first] = nodes;
  if (nodes.length === 1 && first) return <>{`${first.name} is ${first.state}.`}</>;
  const lost = nodes.filter((node) => node.state === "lost").length;
  const parts = [lost ? `${lost} lost` : "", nodes.length - lost ? `${nodes.length - lost} drained` : ""];
  return <>{`${counted(nodes.length, "node")} out of use, ${parts.filter(Boolean).join(" and ")}.`}</>;
}

function isLike(node: Node, words: string): boolean {
  const tenants = node.tenants.flatMap((tenant) => [tenant.job, tenant.name]);
  const text = [node.name, node.state, node.gpu_type, ...node.within.map((cell) => cell.name), ...tenants]
    .join("\n")
    .toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
