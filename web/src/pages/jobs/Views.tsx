import { useState } from "react";

import { Ask } from "../../ui/Ask";
import type { JobsSearch } from "./search";
import { isSame, useViews } from "./views";

/** Saved filters: one is chosen, saved or forgotten. */
export function Views({ search, onChoose }: { search: JobsSearch; onChoose: (search: JobsSearch) => void }) {
  const { views, save, forget } = useViews();
  const [name, setName] = useState<string | null>(null);
  const now = views.find((view) => isSame(view.search, search));
  return (
    <div className="row views">
      {views.length ? (
        <select
          aria-label="Saved views"
          value={now?.name ?? ""}
          onChange={(event) => onChoose(views.find((view) => view.name === event.target.value)?.search ?? {})}
        >
          <option value="">all jobs …</option>
          {views.map((view) => (
            <option key={view.name}>{view.name}</option>
          ))}
        </select>
      ) : null}
      {now ? (
        <button onClick={() => forget(now.name)}>Forget view</button>
      ) : (
        <button disabled={Object.keys(search).length === 0} onClick={() => setName("")}>
          Save view
        </button>
      )}
      {name === null ? null : (
        <Ask
          title="Save this view?"
          action="Save"
          cannot={name.trim() === ""}
          onDo={() => {
            save({ name: name.trim(), search });
            setName(null);
          }}
          onClose={() => setName(null)}
        >
          <p className="note">The filters and the order, under a name, in this browser.</p>
          <label className="field">
            <span>Name of the view</span>
            <input value={name} maxLength={60} onChange={(event) => setName(event.target.value)} />
          </label>
        </Ask>
      )}
    </div>
  );
}
