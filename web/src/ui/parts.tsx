// Small parts without a life of their own.
import type { ReactNode } from "react";

import { ApiError } from "../api/client";
import { fullMoment, moment } from "../units";

export function Card({
  title,
  note,
  aside,
  children,
  id,
}: {
  title: ReactNode;
  note?: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  id?: string;
}) {
  return (
    <section className="card" id={id}>
      <header>
        <h2>{title}</h2>
        {aside}
        {note ? <p className="note">{note}</p> : null}
      </header>
      {children}
    </section>
  );
}

export function Tile({ what, value, more }: { what: string; value: ReactNode; more?: ReactNode }) {
  return (
    <div className="tile">
      <dt>{what}</dt>
      <dd>{value}</dd>
      {more ? <dd className="more">{more}</dd> : null}
    </div>
  );
}

export function Fact({ what, children }: { what: string; children: ReactNode }) {
  return (
    <div>
      <dt>{what}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function StateMark({ state }: { state: string }) {
  return (
    <span className="state" data-state={state}>
      {state}
    </span>
  );
}

/** A moment in the reader's zone. */
export function Time({ at_s }: { at_s: number | null | undefined }) {
  if (at_s == null) return <>–</>;
  return (
    <time dateTime={new Date(at_s * 1000).toISOString()} title={fullMoment(at_s)}>
      {moment(at_s)}
    </time>
  );
}

export function Problem({ error }: { error: unknown }) {
  const hint = error instanceof ApiError ? error.hint : "";
  return (
    <div className="problem" role="alert">
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {hint ? <p>{hint}</p> : null}
    </div>
  );
}

/** Keeps the place of what is being read, so that nothing jumps when it comes. */
export function Room({ rows }: { rows: number }) {
  return <div aria-busy="true" style={{ height: rows * 30 }} />;
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

export function Meter({ share, label }: { share: number; label: string }) {
  const width = `${Math.round(100 * Math.min(1, Math.max(0, share)))}%`;
  return (
    <span className="meter" role="img" aria-label={label} title={label}>
      <i style={{ width }} />
    </span>
  );
}
