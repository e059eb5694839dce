// The same for all chosen jobs.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { Ask } from "../../ui/Ask";
import { useMay } from "../../ui/may";
import { useSay } from "../../ui/toasts";
import { counted } from "../../units";

type Action = Schemas["BulkBody"]["action"];
const WORDS: Record<Action, [question: string, done: string]> = {
  stop: ["Stop", "stopped"],
  hold: ["Hold", "held"],
  release: ["Release", "released"],
  priority: ["Set the priority of", "changed"],
};
/** At once; more are changed one part after the other. */
const MOST = 1000;

interface Props {
  jobs: readonly Schemas["Job"][];
  /** How many there are, where all that are loaded are chosen; else nothing. */
  total: number | null;
  onAll: () => Promise<void>;
  onDone: () => void;
}

export function BulkBar({ jobs, total, onAll, onDone }: Props) {
  const [action, setAction] = useState<Action | null>(null);
  const [value, setValue] = useState(0);
  const may = useMay();
  const say = useSay();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (wish: Action) => changeAll(jobs.map((job) => job.id), wish, value),
    onSuccess: (answer, wish) => {
      const refused = answer.results.filter((result) => !result.ok);
      const first = refused[0];
      const rest = first ? `; ${counted(refused.length, "job")} not: ${first.id}: ${first.error}` : "";
      say(`${counted(answer.done, "job")} ${WORDS[wish][1]}${rest}`, first ? "bad" : "good");
      setAction(null);
      onDone();
      void client.invalidateQueries({ queryKey: ["overview"] });
    },
  });
  const ask = (wish: Action) => {
    change.reset();
    setAction(wish);
  };
  const all = useMutation({ mutationFn: onAll, onError: (error) => say(error.message, "bad") });
  const allowed = jobs.some((job) => may.change(job));
  return (
    <div className="row bulk" role="group" aria-label="Chosen jobs">
      <b>{counted(jobs.length, "job")} chosen</b>
      {total !== null && total > jobs.length ? (
        <button disabled={all.isPending} onClick={() => all.mutate()}>
          Choose all {total.toLocaleString("en")} that match
        </button>
      ) : null}
      <button className="danger" disabled={!allowed} onClick={() => ask("stop")}>
        Stop
      </button>
      <button disabled={!allowed} onClick={() => ask("hold")}>
        Hold
      </button>
      <button disabled={!allowed} onClick={() => ask("release")}>
        Release
      </button>
      <button disabled={!allowed} onClick={() => ask("priority")}>
        Priority
      </button>
      <button className="plain" onClick={onDone}>
        Choose none
      </button>
      {jobs.length > 1 && jobs.length <= MOST ? (
        <Link
          to="/compare"
          search={{
            jobs: jobs.map((job) => job.id).join(","),
          }}
          className="button"
        >
          Compare
        </Link>
      ) : null}
      {action ? (
        <Ask
          title={`${WORDS[action][0]} ${counted(jobs.length, "job")}?`}
          action={WORDS[action][0].split(" ")[0] ?? "Do"}
          danger={action === "stop"}
          isBusy={change.isPending}
          error={change.error}
          onDo={() => change.mutate(action)}
          onClose={() => setAction(null)}
        >
          <p className="note">
            {jobs
              .slice(0, 8)
              .map((job) => `${job.id} ${job.name}`)
              .join(", ")}
            {jobs.length > 8 ? " …" : ""}
          </p>
          {action === "priority" ? (
            <label className="field">
              <span>Priority, −1 to 1000</span>
              <input
                type="number"
                min={-1}
                max={1000}
                step={1}
                value={value}
                onChange={(event) => setValue(event.target.valueAsNumber || 0)}
              />
            </label>
          ) : null}
        </Ask>
      ) : null}
    </div>
  );
}

async function changeAll(ids: string[], action: Action, value: number): Promise<Schemas["Bulk"]> {
  const whole: Schemas["Bulk"] = { results: [], done: 0 };
  for (let at = 0; at < ids.length; at += MOST) {
    const body = { ids: ids.slice(at, at + MOST), action, value, reason: "" };
    const part = await asked(api.POST("/api/v1/jobs:bulk", { body }));
    whole.results.push(...part.results);
    whole.done += part.done;
  }
  return whole;
}
