import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

/** Jobs by id or name, or all of a group, as sweeps make them. */
export function Picker({ ids, group }: { ids: readonly string[]; group: string }) {
  const navigate = useNavigate({ from: "/compare" });
  const [jobs, setJobs] = useState(group ? "" : ids.join(", "));
  const [name, setName] = useState(group);
  const show = () => {
    const wanted = jobs
      .split(/[\s,]+/)
      .filter(Boolean)
      .join(",");
    void navigate({ search: name.trim() ? { group: name.trim() } : { jobs: wanted } });
  };
  return (
    <form
      className="row filters"
      onSubmit={(event) => {
        event.preventDefault();
        show();
      }}
    >
      <label className="field">
        <span>Jobs, by id or name</span>
        <input value={jobs} placeholder="17, 18, 21" onChange={(event) => [setJobs(event.target.value), setName("")]} />
      </label>
      <label className="field">
        <span>or a group or sweep</span>
        <input value={name} onChange={(event) => setName(event.target.value)} />
      </label>
      <button className="main">Compare</button>
    </form>
  );
}
