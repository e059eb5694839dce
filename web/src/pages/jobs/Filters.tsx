import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import type { Schemas } from "../../api/client";
import { vcsQuery } from "../../api/queries";
import { Mine } from "./Mine";
import { STATES, type JobsSearch } from "./search";

interface Props {
  search: JobsSearch;
  counts: Schemas["StateCounts"] | null;
  onChange: (changes: Partial<JobsSearch>) => void;
}

const TYPED_MS = 200;

export function Filters({ search, counts, onChange }: Props) {
  const vcs = useQuery(vcsQuery).data ?? [];
  const chosen = search.state?.split(",") ?? [];
  const toggle = (state: string) => {
    const states = chosen.includes(state) ? chosen.filter((other) => other !== state) : [...chosen, state];
    onChange({ state: states.join(",") || undefined });
  };
  return (
    <search className="filters">
      <Typed
        label="Search"
        value={search.q ?? ""}
        placeholder="id, name, user, tag …"
        onType={(q) => onChange({ q: q || undefined })}
      />
      <label className="field">
        <span>VC</span>
        <select value={search.vc ?? ""} onChange={(event) => onChange({ vc: event.target.value || undefined })}>
          <option value="">all</option>
          {vcs.map((vc) => (
            <option key={vc.name}>{vc.name}</option>
          ))}
        </select>
      </label>
      <Typed
        label="User"
        value={search.user ?? ""}
        placeholder="all"
        onType={(user) => onChange({ user: user || undefined, mine: undefined })}
      />
      <Typed
        label="Group"
        value={search.group ?? ""}
        placeholder="all"
        onType={(group) => onChange({ group: group || undefined })}
      />
      <Mine isOn={search.mine ?? false} onChange={(mine) => onChange({ mine: mine || undefined, user: undefined })} />
      <label className="row check">
        <input
          type="checkbox"
          checked={search.all ?? false}
          onChange={(event) => onChange({ all: event.target.checked || undefined })}
        />
        ended ones too
      </label>
      <div className="choice" role="group" aria-label="States">
        {STATES.map((state) => (
          <button key={state} aria-pressed={chosen.includes(state)} onClick={() => toggle(state)}>
            {state} <span className="quiet count">{counts?.[state].toLocaleString("en")}</span>
          </button>
        ))}
      </div>
    </search>
  );
}

/** Tells what was typed when the typing pauses. */
function Typed(props: { label: string; value: string; placeholder: string; onType: (text: string) => void }) {
  const [text, setText] = useState(props.value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => setText(props.value), [props.value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (typed: string) => {
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => props.onType(typed.trim()), TYPED_MS);
  };
  return (
    <label className="field">
      <span>{props.label}</span>
      <input
        type="search"
        value={text}
        placeholder={props.placeholder}
        maxLength={120}
        onChange={(event) => type(event.target.value)}
      />
    </label>
  );
}
