// Before a node is taken out of use: what that would mean.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { api, asked, type Schemas } from "../../api/client";
import { drainQuery } from "../../api/queries";
import { Ask } from "../../ui/Ask";
import { Problem } from "../../ui/parts";
import { useSay } from "../../ui/toasts";
import { counted } from "../../units";

type Job = Schemas["Job"];

export function Drain({ node, onClose }: { node: Schemas["Node"]; onClose: () => void }) {
  const drains = node.state === "up";
  const client = useQueryClient();
  const say = useSay();
  const change = useMutation({
    mutationFn: () => {
      const body = { state: drains ? ("drained" as const) : ("up" as const) };
      return asked(api.PATCH("/api/v1/nodes/{name}", { params: { path: { name: node.name } }, body }));
    },
    onSuccess: () => {
      say(drains ? `${node.name} is drained` : `${node.name} is in use again`);
      for (const key of ["nodes", "map", "overview"]) void client.invalidateQueries({ queryKey: [key] });
      onClose();
    },
  });
  return (
    <Ask
      title={drains ? `Drain ${node.name}?` : `Use ${node.name} again?`}
      action={drains ? "Drain" : "Use again"}
      isBusy={change.isPending}
      error={change.error}
      onDo={() => change.mutate()}
      onClose={onClose}
    >
      {drains ? (
        <Preview name={node.name} />
      ) : (
        <p className="note">Jobs may start there again. It is {node.state} now.</p>
      )}
    </Ask>
  );
}

function Preview({ name }: { name: string }) {
  const { data, error } = useQuery(drainQuery(name));
  if (error) return <Problem error={error} />;
  if (!data) return <p className="note">Looking what that would affect …</p>;
  return (
    <div className="stack" role="status">
      <p>
        Nothing new starts there. {counted(data.idle, "idle GPU")} of its {data.gpus} {data.idle === 1 ? "is" : "are"}{" "}
        out of reach at once; {counted(data.gpus_left, "GPU")} of the cluster remain.
      </p>
      <Jobs jobs={data.jobs} words="on it, which run on until they end" />
      <Jobs jobs={data.unrunnable} words="that wait now could not start anywhere meanwhile" isBad />
    </div>
  );
}

function Jobs({ jobs, words, isBad = false }: { jobs: readonly Job[]; words: string; isBad?: boolean }) {
  if (!jobs.length) return null;
  return (
    <p className={isBad ? "problem" : "note"}>
      {counted(jobs.length, "job")} {words}:{" "}
      {jobs.slice(0, 10).map((job, index) => (
        <span key={job.id}>
          {index ? ", " : ""}
          <Link to="/jobs/$id" params={{ id: job.id }}>
            {job.id} {job.name}
          </Link>
        </span>
      ))}
      {jobs.length > 10 ? " …" : ""}
    </p>
  );
}
