import { useState } from "react";

import { Ask } from "../../ui/Ask";
import { useOwnName } from "./views";

/** Only the reader's own jobs; where the server does not know who asks, the reader says it once. */
export function Mine({ isOn, onChange }: { isOn: boolean; onChange: (isOn: boolean) => void }) {
  const [name, say] = useOwnName();
  const [typed, setTyped] = useState<string | null>(null);
  const isAsked = typed !== null || (isOn && !name);
  return (
    <>
      <label className="row check" title={name ? `jobs of ${name}` : undefined}>
        <input
          type="checkbox"
          checked={isOn && name !== ""}
          onChange={(event) => (event.target.checked && !name ? setTyped("") : onChange(event.target.checked))}
        />
        mine
      </label>
      {isAsked ? (
        <Ask
          title="Whose jobs are yours?"
          action="Show them"
          cannot={!typed?.trim()}
          onDo={() => {
            say(typed?.trim() ?? "");
            setTyped(null);
            onChange(true);
          }}
          onClose={() => {
            setTyped(null);
            onChange(false);
          }}
        >
          <p className="note">This server asks for no token, so it does not know. The name stays in this browser.</p>
          <label className="field">
            <span>User</span>
            <input value={typed ?? ""} maxLength={64} onChange={(event) => setTyped(event.target.value)} />
          </label>
        </Ask>
      ) : null}
    </>
  );
}
