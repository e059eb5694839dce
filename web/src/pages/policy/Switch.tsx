// Another policy for the whole cluster, after a question.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { Ask } from "../../ui/Ask";
import { useSay } from "../../ui/toasts";

type Info = Schemas["PolicyInfo"];

export function Switch({ info, now, onClose }: { info: Info; now: string; onClose: () => void }) {
  const [knobs, setKnobs] = useState<Record<string, string>>({});
  const client = useQueryClient();
  const say = useSay();
  const wish = spelled(info.name, knobs);
  const change = useMutation({
    mutationFn: () => asked(api.PUT("/api/v1/policy", { body: { policy: wish } })),
    onSuccess: (used) => {
      client.setQueryData(["policy"], used);
      say(`${used.policy} decides from now on`);
      for (const key of ["decisions", "overview", "vcs"]) void client.invalidateQueries({ queryKey: [key] });
      onClose();
    },
  });
  return (
    <Ask
      title={`Let ${info.name} decide?`}
      action="Switch"
      isBusy={change.isPending}
      error={change.error}
      onDo={() => change.mutate()}
      onClose={onClose}
    >
      <p className="note">
        {info.title} Now it is <b>{now}</b>. Running jobs stay where they are until the new policy decides otherwise; it
        may preempt them.
        {info.assumes ? ` It assumes: ${info.assumes}` : ""}
      </p>
      {info.missing.length ? (
        <ul className="note" aria-label="What is missing here">
          {info.missing.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      ) : null}
      {info.knobs.map((knob) => (
        <label className="field" key={knob.name}>
          <span>
            {knob.name}: {knob.help}
          </span>
          {knob.choices.length ? (
            <select
              value={knobs[knob.name] ?? ""}
              onChange={(event) => setKnobs({ ...knobs, [knob.name]: event.target.value })}
            >
              <option value="">{knob.default} (default)</option>
              {knob.choices
                .filter((choice) => choice !== knob.default)
                .map((choice) => (
                  <option key={choice}>{choice}</option>
                ))}
            </select>
          ) : (
            <input
              value={knobs[knob.name] ?? ""}
              placeholder={knob.default}
              onChange={(event) => setKnobs({ ...knobs, [knob.name]: event.target.value })}
            />
          )}
        </label>
      ))}
      <p>
        <code>{wish}</code>
      </p>
    </Ask>
  );
}

/** `tiresias-l` with knobs → `tiresias-l:walk=skip,…`. */
export function spelled(name: string, knobs: Readonly<Record<string, string>>): string {
  const said = Object.entries(knobs).filter(([, value]) => value.trim() !== "");
  return said.length ? `${name}:${said.map(([key, value]) => `${key}=${value.trim()}`).join(",")}` : name;
}
