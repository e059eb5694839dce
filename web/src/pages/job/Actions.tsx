// What can be done with a job.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { jobFileQuery } from "../../api/queries";
import { hasEnded } from "../../live/pages";
import { submitText } from "../../api/submit";
import { Ask } from "../../ui/Ask";
import { useMay } from "../../ui/may";
import { useSay } from "../../ui/toasts";

export function Actions({ job }: { job: Schemas["JobDetail"] }) {
  const may = useMay();
  const [asks, setAsks] = useState<"stop" | "resubmit" | null>(null);
  const isOpen = !hasEnded(job.state);
  const isOwn = may.change(job);
  return (
    <div className="row">
      {isOpen && isOwn ? (
        <button className="danger" disabled={job.state === "stopping"} onClick={() => setAsks("stop")}>
          Stop
        </button>
      ) : null}
      {job.state === "pending" && isOwn ? <Hold job={job} /> : null}
      {may.submit ? (
        <>
          <button onClick={() => setAsks("resubmit")}>Resubmit</button>
          <Link to="/submit" search={{ from: job.id }} className="button">
            Clone
          </Link>
        </>
      ) : null}
      {job.group ? (
        <Link to="/compare" search={{ group: job.group }} className="button">
          Compare its group
        </Link>
      ) : null}
      {asks === "stop" ? <Stop job={job} onClose={() => setAsks(null)} /> : null}
      {asks === "resubmit" ? <Resubmit job={job} onClose={() => setAsks(null)} /> : null}
    </div>
  );
}

function Hold({ job }: { job: Schemas["JobDetail"] }) {
  const say = useSay();
  const client = useQueryClient();
  const isHeld = job.reason.startsWith("held");
  const change = useMutation({
    mutationFn: (hold: boolean) =>
      asked(api.PATCH("/api/v1/jobs/{id}", { params: { path: { id: job.id } }, body: { hold } })),
    onSuccess: (changed) => {
      client.setQueryData(["job", job.id], changed);
      void client.invalidateQueries({ queryKey: ["explain", job.id] });
    },
    onError: (error) => say(error.message, "bad"),
  });
  return (
    <button disabled={change.isPending} onClick={() => change.mutate(!isHeld)}>
      {isHeld ? "Release" : "Hold"}
    </button>
  );
}

function Stop({ job, onClose }: { job: Schemas["JobDetail"]; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const client = useQueryClient();
  const stop = useMutation({
    mutationFn: () => asked(api.POST("/api/v1/jobs/{id}/stop", { params: { path: { id: job.id } }, body: { reason } })),
    onSuccess: (stopped) => {
      client.setQueryData(["job", job.id], stopped);
      onClose();
    },
  });
  return (
    <Ask
      title={`Stop job ${job.id}?`}
      action="Stop"
      danger
      isBusy={stop.isPending}
      error={stop.error}
      onDo={() => stop.mutate()}
      onClose={onClose}
    >
      <p className="note">It is asked to save and leave, and ended after {job.request.grace_s} s if it does not.</p>
      <label className="field">
        <span>Why (others see it; may stay empty)</span>
        <input value={reason} maxLength={500} onChange={(event) => setReason(event.target.value)} />
      </label>
    </Ask>
  );
}

function Resubmit({ job, onClose }: { job: Schemas["JobDetail"]; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const say = useSay();
  const resubmit = useMutation({
    mutationFn: async () => {
      const file = await client.fetchQuery(jobFileQuery(job.id));
      if (file.hidden.length)
        throw new Error(`values of ${file.hidden.join(", ")} are not shown; use Clone and fill them in`);
      return submitText(file.text);
    },
    onSuccess: (made) => {
      onClose();
      say(`Submitted as job ${made.id}`);
      void navigate({ to: "/jobs/$id", params: { id: made.id } });
    },
  });
  return (
    <Ask
      title={`Submit job ${job.id} again?`}
      action="Resubmit"
      isBusy={resubmit.isPending}
      error={resubmit.error}
      onDo={() => resubmit.mutate()}
      onClose={onClose}
    >
      <p className="note">A new job with the same file, from its beginning. Clone opens it for changes first.</p>
    </Ask>
  );
}
