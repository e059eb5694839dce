// One node: what it has, who is on it.
import { Link } from "@tanstack/react-router";

import type { Schemas } from "../../api/client";
import { StateMark } from "../../ui/parts";
import { amount, counted } from "../../units";

type Node = Schemas["Node"];

export function NodeRow({ node, onChange }: { node: Node; onChange: ((node: Node) => void) | null }) {
  return (
    <>
      <div className="node-name">
        <b>{node.name}</b>
        <span className="quiet">{node.within.map((cell) => cell.name).join(" / ")}</span>
      </div>
      <StateMark state={node.state} />
      <span>{node.gpu_type || "–"}</span>
      <GpuRow node={node} />
      <span className="quiet">
        {node.used} of {node.gpus} used
        {node.cpus === null ? "" : ` · ${amount(node.cpus_free)} of ${amount(node.cpus)} CPUs free`}
        {node.memory_gib === null ? "" : ` · ${amount(node.memory_free_gib)} of ${amount(node.memory_gib)} GiB free`}
      </span>
      {onChange ? (
        <button onClick={() => onChange(node)}>{node.state === "up" ? "Drain" : "Use again"}</button>
      ) : (
        <span />
      )}
    </>
  );
}

/** GPU by GPU: who is on it, and what its driver says. */
function GpuRow({ node }: { node: Node }) {
  return (
    <ul className="gpus">
      {node.jobs.map((_, gpu) => (
        <GpuCell key={gpu} node={node} gpu={gpu} />
      ))}
    </ul>
  );
}

function GpuCell({ node, gpu }: { node: Node; gpu: number }) {
  const tenants = node.tenants.filter((tenant) => tenant.gpu === gpu);
  const health = node.health.find((one) => one.index === gpu);
  const isSick = (health?.errors ?? 0) > 0;
  return (
    <li className={isSick ? "sick" : tenants.length ? "taken" : undefined} title={wordsOf(gpu, health)}>
      {tenants.length ? (
        tenants.map((tenant) => (
          <Link key={tenant.job} to="/jobs/$id" params={{ id: tenant.job.split("/")[0] ?? tenant.job }}>
            {tenant.job}
            {tenant.milli < 1000 ? <span className="quiet"> {amount(tenant.milli / 1000)}</span> : null}
          </Link>
        ))
      ) : (
        <span className="quiet">free</span>
      )}
      {health?.utilization != null ? <span className="quiet">{Math.round(health.utilization)}%</span> : null}
      {isSick ? <span className="bad">{counted(health?.errors ?? 0, "error")}</span> : null}
    </li>
  );
}

function wordsOf(gpu: number, health: Schemas["Gpu"] | undefined): string {
  if (!health) return `GPU ${gpu}; no driver says how it is`;
  const parts = [
    `GPU ${gpu}`,
    health.temperature_c === null ? "" : `${health.temperature_c} °C`,
    health.power_w === null ? "" : `${Math.round(health.power_w)} W`,
    health.memory_total_mib === null
      ? ""
      : `${amount(health.memory_used_mib)} of ${amount(health.memory_total_mib)} MiB`,
    health.errors === null ? "" : counted(health.errors, "memory error"),
  ];
  return parts.filter(Boolean).join(", ");
}
