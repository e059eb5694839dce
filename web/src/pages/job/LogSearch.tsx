import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { Problem } from "../../ui/parts";
import { bytes, counted } from "../../units";
import { Marked } from "./LogView";

interface Props {
  id: string;
  task: string;
  attempt: number;
  words: string;
}

/** What is too old to be loaded is searched by the server, the newest first. */
export function LogSearch({ id, task, attempt, words }: Props) {
  const [asks, setAsks] = useState("");
  const { data, error, isFetching } = useQuery({
    queryKey: ["log-search", id, task, attempt, asks],
    queryFn: ({ signal }) =>
      asked(
        api.GET("/api/v1/jobs/{id}/logs:search", {
          params: { path: { id }, query: { q: asks, task, attempt } },
          signal,
        }),
      ),
    enabled: asks === words && words !== "",
    staleTime: 0,
  });
  if (asks !== words) {
    return (
      <button className="whole-log" onClick={() => setAsks(words)}>
        Search the whole log
      </button>
    );
  }
  return (
    <div className="whole-log" role="status">
      {error ? <Problem error={error} /> : null}
      {isFetching && !data ? "Searching …" : null}
      {data ? <p className="note">{howMuch(data)}</p> : null}
      <ol className="matches" tabIndex={0} aria-label="Lines that were found">
        {data?.matches.map((match) => (
          <li key={`${match.task} ${match.line} ${match.text}`}>
            <Link
              to="/jobs/$id"
              params={{ id }}
              search={{ tab: "logs", task: match.task, attempt: match.attempt, line: match.line }}
            >
              {match.task} {match.line}
            </Link>{" "}
            <Marked text={match.text} words={words} />
          </li>
        ))}
      </ol>
    </div>
  );
}

function howMuch({ matches, is_cut, searched_bytes, bytes: kept }: Schemas["Matches"]): string {
  const found = is_cut ? `The newest ${counted(matches.length, "line")} of more` : counted(matches.length, "line");
  const where =
    searched_bytes < kept
      ? `the latest ${bytes(searched_bytes)} were searched, of ${bytes(kept)}`
      : `all ${bytes(kept)} that are kept were searched`;
  return `${found}, the newest first; ${where}.`;
}
