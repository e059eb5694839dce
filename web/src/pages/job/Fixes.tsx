// What would let a waiting job start, tried out when somebody asks.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { canBeMade, type Fix, makeChange, readChanges, type Tried } from "../../api/changes";
import { Ask } from "../../ui/Ask";
import { Problem } from "../../ui/parts";
import { useSay } from "../../ui/toasts";
import { Words } from "../../ui/Words";
import { gpuHours } from "../../units";

export function Fixes({ id }: { id: string }) {
  const [fixes, setFixes] = useState<Fix[]>([]);
  const [tried, setTried] = useState<Tried | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const asking = useRef<AbortController | null>(null);
  useEffect(() => () => asking.current?.abort(), []);
  const ask = async () => {
    const now = (asking.current = new AbortController());
    setFixes([]);
    setTried(null);
    setError(null);
    setBusy(true);
    try {
      for await (const line of readChanges(id, now.signal)) {
        if (line.type === "fix") setFixes((known) => [...known, line]);
        else setTried(line);
      }
    } catch (problem) {
      if (!now.signal.aborted) setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="fixes">
      <button disabled={isBusy} onClick={() => void ask()}>
        {isBusy ? "Trying changes out …" : "What would let it start?"}
      </button>
      {fixes.length ? (
        <ul aria-label="Changes that help">
          {fixes.map((fix) => (
            <Offer key={`${fix.when} ${fix.text}`} id={id} fix={fix} />
          ))}
        </ul>
      ) : null}
      {error ? <Problem error={error} /> : null}
      {tried ? <p className="quiet">{lastWords(tried, fixes.length)}</p> : null}
    </div>
  );
}

export function lastWords(tried: Tried, count: number): string {
  if (tried.error) return `Nothing could be tried out: ${tried.error}.`;
  if (tried.cut) return "There was no time to try everything.";
  return `Nothing ${count ? "else " : ""}that you may do helps.`;
}

function Offer({ id, fix }: { id: string; fix: Fix }) {
  const client = useQueryClient();
  const say = useSay();
  const [asks, setAsks] = useState(false);
  const make = useMutation({
    mutationFn: () => makeChange(id, fix),
    onSuccess: () => {
      setAsks(false);
      say(`Done: ${fix.text}`);
      for (const key of ["job", "explain"]) void client.invalidateQueries({ queryKey: [key, id] });
    },
    onError: (error) => (asks ? undefined : say(error.message, "bad")),
  });
  const press = () => (fix.kind === "stop" ? setAsks(true) : make.mutate());
  return (
    <li>
      <span className="tag">{fix.when}</span>{" "}
      {canBeMade(fix) ? (
        <button className={fix.kind === "stop" ? "danger" : undefined} disabled={make.isPending} onClick={press}>
          {fix.text}
        </button>
      ) : (
        <Words text={fix.text} />
      )}{" "}
      <Words text={`${fix.effect}${price(fix)}`} />
      {asks ? (
        <Ask
          title={`${fix.text.charAt(0).toUpperCase()}${fix.text.slice(1)}?`}
          action="Stop"
          danger
          isBusy={make.isPending}
          error={make.error}
          onDo={() => make.mutate()}
          onClose={() => setAsks(false)}
        >
          <p className="note">Its work is lost: {gpuHours(fix.lost_gpu_s / 3600)} GPU-hours.</p>
        </Ask>
      ) : null}
    </li>
  );
}

function price(fix: Fix): string {
  return fix.lost_gpu_s ? `; ${gpuHours(fix.lost_gpu_s / 3600)} GPU-hours are lost` : "";
}
