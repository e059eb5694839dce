// The same for all chosen jobs.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { Ask } from "../../ui/Ask";
import { useMay } from "../../ui/may";
import { useSay } from "../../ui/toasts";
import { COMPARED_MAX } from "../compare/search";
import { counted } from "../../units";

type Action = Schemas["BulkBody"]["action"];
const WORDS: Record<Action, [question: string, done: string]> = {
  stop: ["Stop", "stopped"],
  hold: ["Hold", "held"],
  release: ["Release", "released"],
  priority: ["Set the priority of", "changed"],
};
const MOST = 1000;

export function BulkBar({ jobs, onDone }: { jobs: readonly Schemas["Job"][]; onDone: () => void }) {
  const [action, setAction] = useState<Action | null>(null);
  const [value, setValue] = useState(0);
  const may = useMay();
  const say = useSay();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (wish: Action) => {
      const body = { ids: jobs.slice(0, MOST).map((job) => job.id), action: wish, value, reason: "" };
      return asked(api.POST("/api/v1/jobs:bulk", { body }));
    },
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
  const allowed = jobs.some((job) => may.change(job));
  return (
    <div className="row bulk" role="group" aria-label="Chosen jobs">
      <b>{counted(jobs.length, "job")} chosen</b>
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
      {jobs.length > 1 ? (
        <Link
          to="/compare"
          search={{
            jobs: jobs
              .slice(0, COMPARED_MAX)
              .map((job) => job.id)
              .join(","),
          }}
          className="button"
        >
          Compare
        </Link>
      ) : null}
      {action ? (
        <Ask
          title={`${WORDS[action][0]} ${counted(Math.min(MOST, jobs.length), "job")}?`}
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
          {jobs.length > MOST ? (
            <p className="hint">
              At most {MOST} at once: the first {MOST} of them.
            </p>
          ) : null}
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
