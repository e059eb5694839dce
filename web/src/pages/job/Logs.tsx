// What the tasks of a job write, as they write it.
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";

import { api, asked, type Schemas } from "../../api/client";
import { seriesColour } from "../../draw/palette";
import { followLog } from "../../live/followLog";
import { filterLines, LINES_MAX, type LogLine } from "../../live/logLines";
import { Card, Empty, Problem } from "../../ui/parts";
import { counted } from "../../units";

const ROW = 20;

export function Logs({ job }: { job: Schemas["JobDetail"] }) {
  const tasks = useMemo(() => taskNames(job), [job]);
  const [attempt, setAttempt] = useState(0);
  const [task, setTask] = useState("");
  const [words, setWords] = useState("");
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [isOver, setOver] = useState(false);
  const isLabelled = tasks.length > 1;
  useEffect(() => {
    setLines([]);
    return followLog({ id: job.id, attempt, isLabelled }, (found, over) => {
      setLines(found);
      setOver(over);
    });
  }, [job.id, attempt, isLabelled, isOver && attempt === 0 ? job.state : ""]);
  const shown = useMemo(() => filterLines(lines, task, words), [lines, task, words]);
  return (
    <Card
      title="Logs"
      note={
        lines.length >= LINES_MAX
          ? `The last ${LINES_MAX.toLocaleString("en")} lines are here; the search below looks through all.`
          : undefined
      }
    >
      <div className="row log-tools">
        {isLabelled ? (
          <label className="field">
            <span>Task</span>
            <select value={task} onChange={(event) => setTask(event.target.value)}>
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
            <select value={attempt} onChange={(event) => setAttempt(Number(event.target.value))}>
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
        <span className="quiet" role="status">
          {counted(shown.length, "line")}
          {isOver ? ", ended" : ", live"}
        </span>
      </div>
      {shown.length ? (
        <Lines lines={shown} tasks={tasks} words={words} />
      ) : (
        <Empty>{words ? "No loaded line has this text." : "Nothing has been written yet."}</Empty>
      )}
      {words ? <WholeLog id={job.id} task={task} attempt={attempt} words={words} /> : null}
    </Card>
  );
}

function taskNames(job: Schemas["JobDetail"]): string[] {
  return Object.entries(job.request.tasks).flatMap(([role, { count }]) =>
    Array.from({ length: count }, (_, index) => `${role}-${index}`),
  );
}

/** Follows the end, unless the reader has scrolled up. */
function Lines({ lines, tasks, words }: { lines: readonly LogLine[]; tasks: readonly string[]; words: string }) {
  const place = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => place.current,
    estimateSize: () => ROW,
    overscan: 20,
  });
  useEffect(() => {
    if (isAtEnd.current) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, virtual]);
  const scrolled = () => {
    const element = place.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 2 * ROW;
  };
  const last = lines.at(-1)?.number ?? 0;
  return (
    <div className="log" ref={place} onScroll={scrolled} tabIndex={0} role="log" aria-label="Log" aria-live="off">
      <div style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          if (!line) return null;
          return (
            <p key={line.number} style={{ transform: `translateY(${item.start}px)` }}>
              <i style={{ minWidth: `${String(last).length}ch` }}>{line.number}</i>
              {line.task ? <b className={`c${seriesColour(tasks.indexOf(line.task)).slice(1)}`}>{line.task}</b> : null}
              <Marked text={line.text} words={words} />
            </p>
          );
        })}
      </div>
    </div>
  );
}

function Marked({ text, words }: { text: string; words: string }) {
  const at = words ? text.toLowerCase().indexOf(words.toLowerCase()) : -1;
  if (at < 0) return <span>{text || " "}</span>;
  return (
    <span>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + words.length)}</mark>
      {text.slice(at + words.length)}
    </span>
  );
}

/** What is too old to be loaded is searched by the server. */
function WholeLog({ id, task, attempt, words }: { id: string; task: string; attempt: number; words: string }) {
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
      {isFetching ? "Searching …" : null}
      {data ? (
        <p className="note">
          {counted(data.matches.length, "line")} of the whole log{data.is_cut ? ", there are more" : ""}
        </p>
      ) : null}
      <ol className="matches">
        {data?.matches.map((match) => (
          <li key={`${match.task} ${match.line}`}>
            <span className="quiet">
              {match.task} {match.line}
            </span>{" "}
            <Marked text={match.text} words={words} />
          </li>
        ))}
      </ol>
    </div>
  );
}
