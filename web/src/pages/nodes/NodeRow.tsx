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

/** GPU by GPU: who is on it, and what its driver says; without a driver, equal neighbours are one. */
function GpuRow({ node }: { node: Node }) {
  return (
    <ul className="gpus">
      {groupsOf(node).map(({ first, count }) => (
        <GpuCell key={first} node={node} first={first} count={count} />
      ))}
    </ul>
  );
}

function groupsOf(node: Node): { first: number; count: number }[] {
  const groups: { first: number; count: number }[] = [];
  const whose = (gpu: number) =>
    JSON.stringify(node.tenants.flatMap((one) => (one.gpu === gpu ? [one.job, one.milli] : [])));
  for (let gpu = 0; gpu < node.gpus; gpu++) {
    const last = groups.at(-1);
    if (last && !node.health.length && whose(last.first) === whose(gpu)) last.count += 1;
    else groups.push({ first: gpu, count: 1 });
  }
  return groups;
}

function GpuCell({ node, first, count }: { node: Node; first: number; count: number }) {
  const tenants = node.tenants.filter((tenant) => tenant.gpu === first);
  const health = node.health.find((one) => one.index === first);
  const isSick = (health?.errors ?? 0) > 0;
  const where = count > 1 ? `${first}–${first + count - 1}` : String(first);
  return (
    <li className={isSick ? "sick" : tenants.length ? "taken" : undefined} title={wordsOf(where, health)}>
      <span className="quiet">{where}</span>
      {tenants.map((tenant) => (
        <TenantLink key={tenant.job} tenant={tenant} />
      ))}
      {tenants.length ? null : <span className="quiet">{node.state === "up" ? "free" : "idle"}</span>}
      {health?.utilization != null ? <span className="quiet">{Math.round(health.utilization)}%</span> : null}
      {isSick ? <span className="bad">{counted(health?.errors ?? 0, "error")}</span> : null}
    </li>
  );
}

function TenantLink({ tenant }: { tenant: Schemas["Tenant"] }) {
  const share = tenant.milli < 1000 ? <span className="quiet"> {amount(tenant.milli / 1000)}</span> : null;
  if (!tenant.name) return <span>a job of another VC{share}</span>;
  return (
    <Link
      className="name"
      to="/jobs/$id"
      params={{ id: tenant.job.split("/")[0] ?? tenant.job }}
      title={`${tenant.job} ${tenant.name}`}
    >
      {tenant.job} {tenant.name}
      {share}
    </Link>
  );
}

function wordsOf(gpu: string, health: Schemas["Gpu"] | undefined): string {
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
