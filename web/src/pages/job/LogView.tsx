// Lines of a log: numbered, wrapped or not, each with an address of its own.
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import { seriesColour } from "../../draw/palette";
import type { LogLine } from "../../live/logLines";

interface Props {
  lines: readonly LogLine[];
  tasks: readonly string[];
  words: string;
  isWrapped: boolean;
  id: string;
  attempt: number;
  /** The line that an address names. */
  marked?: number;
}

const ROW = 20;

/** Follows the end, unless the reader has scrolled up or a line is marked. */
export function LogView({ lines, tasks, words, isWrapped, id, attempt, marked }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(marked === undefined);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => place.current,
    estimateSize: () => ROW,
    overscan: 20,
  });
  useEffect(() => virtual.measure(), [isWrapped, virtual]);
  useEffect(() => {
    if (isAtEnd.current) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, virtual]);
  useEffect(() => {
    const index = lines.findIndex((line) => line.number === marked);
    if (index >= 0) virtual.scrollToIndex(index, { align: "center" });
  }, [marked, lines, virtual]);
  const top = useRef(0);
  const scrolled = () => {
    const element = place.current;
    if (!element) return;
    // Lines may have come between our own scrolling and this word of it: only a reader scrolls up.
    if (element.scrollTop < top.current - ROW) isAtEnd.current = false;
    if (element.scrollHeight - element.scrollTop - element.clientHeight < 2 * ROW) isAtEnd.current = true;
    top.current = element.scrollTop;
  };
  const last = lines.at(-1)?.number ?? 0;
  return (
    <div
      className={isWrapped ? "log wrapped" : "log"}
      ref={place}
      onScroll={scrolled}
      tabIndex={0}
      role="log"
      aria-label="Log"
      aria-live="off"
    >
      <div style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          if (!line) return null;
          const task = line.task || (tasks.length > 1 ? tasks[0] : undefined);
          return (
            <p
              key={item.key}
              ref={isWrapped ? virtual.measureElement : undefined}
              data-index={item.index}
              aria-current={line.number === marked ? "true" : undefined}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <Link
                className="line-number"
                to="/jobs/$id"
                params={{ id }}
                search={{ tab: "logs", attempt, line: line.number, ...(task ? { task } : {}) }}
                style={{ minWidth: `${String(last).length}ch` }}
              >
                {line.number}
              </Link>
              {line.task ? <b className={`c${seriesColour(tasks.indexOf(line.task)).slice(1)}`}>{line.task}</b> : null}
              <Marked text={line.text} words={words} />
            </p>
          );
        })}
      </div>
    </div>
  );
}

export function Marked({ text, words }: { text: string; words: string }) {
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
