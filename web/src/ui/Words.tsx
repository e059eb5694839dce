// Sentences of the server that name jobs, such as "preempted by job 12": each with its name, as a link.
import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment } from "react";

import { nameQuery } from "../api/queries";

const NAMED = /\bjob ([0-9]{1,15})(?:\/[\w.-]+)?/g;

export function Words({ text }: { text: string }) {
  const parts: React.ReactNode[] = [];
  let at = 0;
  for (const found of text.matchAll(NAMED)) {
    const id = found[1] ?? "";
    parts.push(text.slice(at, found.index));
    parts.push(<NamedJob id={id} text={found[0]} />);
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return (
    <>
      {parts.map((part, index) => (
        <Fragment key={index}>{part}</Fragment>
      ))}
    </>
  );
}

/** True until the names in these sentences are known: they would make a line longer that is shown already. */
export function useWaitsForNames(...texts: readonly string[]): boolean {
  const ids = new Set(texts.flatMap((text) => [...text.matchAll(NAMED)].map((found) => found[1] ?? "")));
  return useQueries({ queries: [...ids].map((id) => nameQuery(id)) }).some((name) => name.isPending);
}

function NamedJob({ id, text }: { id: string; text: string }) {
  const { data: name } = useQuery(nameQuery(id));
  return (
    <Link to="/jobs/$id" params={{ id }} title={name}>
      {text}
      {name ? ` ${name}` : ""}
    </Link>
  );
}
