// What the tasks of a job write, as they write it; or the lines around the one that an address names.
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";

import type { Schemas } from "../../api/client";
import { followLog, logAddress, readLines, type LogState } from "../../live/followLog";
import { filterLines, isCut, LINES_MAX, type LogLine } from "../../live/logLines";
import { Card, Empty } from "../../ui/parts";
import { useStored } from "../../ui/stored";
import { counted } from "../../units";
import { LogSearch } from "./LogSearch";
import { LogView } from "./LogView";
import type { JobSearch } from "./search";

type JobDetail = Schemas["JobDetail"];
const route = getRouteApi("/frame/jobs/$id");
const AROUND = 200;
const STATES: Record<LogState, string> = { live: "live", away: "not connected", over: "ended" };

export function Logs({ job }: { job: JobDetail }) {
  const tasks = useMemo(() => taskNames(job), [job]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [words, setWords] = useState("");
  const [wrapped, setWrapped] = useStored(localStorage, "skep-wrap");
  const isWrapped = wrapped !== null;
  const { attempt = 0, task = "", line } = search;
  const followed = useFollowed(job, attempt, tasks.length > 1, line === undefined);
  const around = useAround(job, attempt, task, line);
  const lines = line === undefined ? followed.lines : around;
  const shown = useMemo(
    () => filterLines(lines, line === undefined ? task : "", words),
    [lines, task, line, words],
  );
  const choose = (changes: Partial<JobSearch>) =>
    void navigate({
      to: "/jobs/$id",
      params: { id: job.id },
      search: { tab: "logs", ...(task ? { task } : {}), ...(attempt ? { attempt } : {}), ...changes },
    });
  return (
    <Card title="Logs" note={line === undefined && lines.length >= LINES_MAX ? TOO_MANY : undefined}>
      <div className="row log-tools">
        {tasks.length > 1 ? (
          <label className="field">
            <span>Task</span>
            <select value={task} onChange={(event) => choose({ task: event.target.value || undefined })}>
              <option value="">all</option>
              {tasks.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        ) : null}
        {job.attempts > 1 ? (
          <label className="field">
            <span>Attempt</span>
            <select value={attempt} onChange={(event) => choose({ attempt: Number(event.target.value) || undefined })}>
              <option value={0}>the last</option>
              {Array.from({ length: job.attempts }, (_, index) => (
                <option key={index} value={index + 1}>
                  {index + 1}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        <label className="field">
          <span>Search</span>
          <input type="search" value={words} placeholder="text" onChange={(event) => setWords(event.target.value)} />
        </label>
        <label className="row check">
          <input type="checkbox" checked={isWrapped} onChange={(event) => setWrapped(event.target.checked ? "yes" : null)} />
          wrap
        </label>
        <a className="button" href={logAddress(job.id, { task, attempt })} download={`job-${job.id}.log`}>
          Download
        </a>
        <span className="quiet" role="status">
          {line === undefined ? (
            <>
              {howMany(shown, lines)}, {STATES[followed.state]}
            </>
          ) : (
            <>
              lines around {line.toLocaleString("en")}{" "}
              <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: "logs" }}>
                to the end
              </Link>
            </>
          )}
        </span>
      </div>
      {shown.length ? (
        <LogView
          key={line}
          lines={shown}
          tasks={tasks}
          words={words}
          isWrapped={isWrapped}
          id={job.id}
          attempt={attempt || job.attempts}
          {...(line === undefined ? {} : { marked: line })}
        />
      ) : (
        <div className="log">
          <Empty>{nothing(words, line, followed.state)}</Empty>
        </div>
      )}
      {words ? <LogSearch id={job.id} task={task} attempt={attempt} words={words} /> : null}
    </Card>
  );
}

const TOO_MANY = `The last ${LINES_MAX.toLocaleString("en")} lines are here; the search below looks through all.`;

function howMany(shown: readonly LogLine[], loaded: readonly LogLine[]): string {
  if (!isCut(loaded)) return counted(shown.length, "line");
  const last = `the last ${counted(loaded.length, "line")}`;
  return shown.length === loaded.length ? last : `${shown.length.toLocaleString("en")} of ${last}`;
}

function nothing(words: string, line: number | undefined, state: LogState): string {
  if (words) return "No loaded line has this text.";
  if (line !== undefined) return "This line is not kept, or was not written yet.";
  return state === "away" ? "The server does not answer." : "Nothing has been written yet.";
}

/** The end of the log as it grows. */
function useFollowed(job: JobDetail, attempt: number, isLabelled: boolean, isWanted: boolean) {
  const [found, setFound] = useState<{ lines: readonly LogLine[]; state: LogState }>({ lines: [], state: "live" });
  const isOver = found.state === "over";
  useEffect(() => {
    if (!isWanted) return;
    setFound({ lines: [], state: "live" });
    return followLog({ id: job.id, attempt, isLabelled }, (lines, state) => setFound({ lines, state }));
  }, [job.id, attempt, isLabelled, isWanted, isOver && attempt === 0 ? job.state : ""]);
  return found;
}

/** The lines before and after one, of one task. */
function useAround(job: JobDetail, attempt: number, task: string, line: number | undefined): readonly LogLine[] {
  const first = Math.max(1, (line ?? 1) - AROUND);
  const { data = [] } = useQuery({
    queryKey: ["log-lines", job.id, attempt, task, first],
    queryFn: ({ signal }) => readLines(job.id, false, { attempt, task: task || "", first, lines: 2 * AROUND }, signal),
    enabled: line !== undefined,
    staleTime: Infinity,
  });
  return data;
}

export function taskNames(job: JobDetail): string[] {
  return Object.entries(job.request.tasks).flatMap(([role, { count }]) =>
    Array.from({ length: count }, (_, index) => `${role}-${index}`),
  );
}
