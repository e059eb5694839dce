import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, asked } from "../../api/client";
import { policiesQuery, tracesQuery } from "../../api/queries";
import { uploadTrace } from "../../api/upload";
import { useMay } from "../../ui/may";
import { Card, Problem } from "../../ui/parts";
import { useSay } from "../../ui/toasts";
import { bytes, counted } from "../../units";

const FIRST = ["fifo", "tiresias-l", "srsf"];

export function NewStudy() {
  const may = useMay();
  const client = useQueryClient();
  const say = useSay();
  const { data: traces = [] } = useQuery(tracesQuery);
  const { data: policies } = useQuery(policiesQuery);
  const [name, setName] = useState("");
  const [trace, setTrace] = useState("history");
  const [cluster, setCluster] = useState("");
  const [repetitions, setRepetitions] = useState(0);
  const [chosen, setChosen] = useState<readonly string[]>(FIRST);
  const upload = useMutation({
    mutationFn: uploadTrace,
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ["traces"] });
      setTrace(made.id);
      say(`${made.name}: ${counted(made.jobs, "job")}, ${made.format}`);
    },
  });
  const run = useMutation({
    mutationFn: () => asked(api.POST("/api/v1/studies", { body: { name, trace, cluster, repetitions, policies: [...chosen] } })),
    onSuccess: () => {
      setName("");
      void client.invalidateQueries({ queryKey: ["studies"] });
    },
  });
  const toggle = (policy: string) =>
    setChosen(chosen.includes(policy) ? chosen.filter((other) => other !== policy) : [...chosen, policy]);
  if (!may.submit || !policies) return null;
  return (
    <Card title="A new study">
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          run.mutate();
        }}
      >
        <div className="filters">
          <label className="field">
            <span>Jobs of</span>
            <select value={trace} onChange={(event) => setTrace(event.target.value)}>
              <option value="history">this cluster's own history</option>
              {traces.map((one) => (
                <option key={one.id} value={one.id}>
                  {one.name}: {counted(one.jobs, "job")}, {bytes(one.bytes)}
                </option>
              ))}
            </select>
          </label>
          <label className="field">
            <span>or a trace file (CSV)</span>
            <input
              type="file"
              accept=".csv,.json,.gz,text/csv"
              disabled={upload.isPending}
              onChange={(event) => {
                const file = event.target.files?.[0];
                if (file) upload.mutate(file);
                event.target.value = "";
              }}
            />
          </label>
          <label className="field">
            <span>On</span>
            <input
              value={cluster}
              placeholder="this one, or 16x8"
              onChange={(event) => setCluster(event.target.value)}
            />
          </label>
          <label className="field">
            <span>Repetitions</span>
            <select value={repetitions} onChange={(event) => setRepetitions(Number(event.target.value))}>
              <option value={0}>none: each policy once</option>
              <option value={10}>10 bootstraps, with a recommendation</option>
              <option value={30}>30 bootstraps, with a recommendation</option>
            </select>
          </label>
          <label className="field">
            <span>Name</span>
            <input value={name} maxLength={100} onChange={(event) => setName(event.target.value)} />
          </label>
        </div>
        <fieldset className="policies">
          <legend className="what">Policies, up to 12; none with repetitions: all that the trace can serve</legend>
          {policies.map((policy) => (
            <label key={policy.name} title={policy.title} className="row">
              <input type="checkbox" checked={chosen.includes(policy.name)} onChange={() => toggle(policy.name)} />
              {policy.name}
            </label>
          ))}
        </fieldset>
        {upload.isPending ? (
          <p className="note" role="status">
            The trace is being read …
          </p>
        ) : null}
        {upload.error ? <Problem error={upload.error} /> : null}
        {run.error ? <Problem error={run.error} /> : null}
        <div className="row">
          <button
            className="main"
            disabled={
              run.isPending || upload.isPending || (chosen.length === 0 && repetitions === 0) || chosen.length > 12
            }
          >
            Run
          </button>
        </div>
      </form>
    </Card>
  );
}
