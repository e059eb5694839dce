import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { Schemas } from "../../api/client";
import { mapQuery } from "../../api/queries";
import { ClusterMap } from "../../ui/ClusterMap";
import { Card, Empty, StateMark } from "../../ui/parts";

const NONE: never[] = [];
const IDLE: ReadonlyMap<number, number> = new Map();

/** Where it is now, among the others. */
export function Placement({ job }: { job: Schemas["JobDetail"] }) {
  const { data: map } = useQuery(mapQuery);
  const lit = useMemo(() => new Set([job.id]), [job.id]);
  return (
    <Card title="Placement" note={job.tasks.length ? undefined : "It holds no GPU now."}>
      {map ? <ClusterMap map={map} by="job" vcs={NONE} busy={IDLE} lit={lit} /> : null}
      {job.tasks.length ? <Tasks tasks={job.tasks} /> : <Empty>No task has been started.</Empty>}
    </Card>
  );
}

function Tasks({ tasks }: { tasks: readonly Schemas["Task"][] }) {
  return (
    <div className="scroll tasks" tabIndex={0} role="region" aria-label="Tasks">
      <table>
        <thead>
          <tr>
            <th>Task</th>
            <th>State</th>
            <th>Node</th>
            <th>GPUs</th>
            <th className="number">Exit code</th>
          </tr>
        </thead>
        <tbody>
          {tasks.map((task) => (
            <tr key={task.name}>
              <th scope="row">{task.name}</th>
              <td>
                <StateMark state={task.state} />
              </td>
              <td>{task.node}</td>
              <td>{task.gpus.join(", ") || "–"}</td>
              <td className="number">{task.exit_code ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
