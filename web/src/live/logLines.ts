// The text of a log as lines, each with its number and the task that wrote it.
export interface LogLine {
  /** Among all lines of its task, from 1. */
  number: number;
  task: string;
  text: string;
}

export const LINES_MAX = 20_000;

/** Takes text in pieces as they come; keeps the last lines. */
export class LogLines {
  private rest = "";
  private isFirst = true;

  /** `isLabelled`: each line begins with its task, as those of jobs with several tasks do. `lines`: what was read before. */
  constructor(
    private readonly isLabelled: boolean,
    public lines: readonly LogLine[] = [],
  ) {}

  add(piece: string): void {
    const parts = (this.rest + piece).split("\n");
    this.rest = parts.pop() ?? "";
    const fresh = parts.map((part) => this.line(part));
    if (!fresh.length) return;
    const known = this.isFirst ? before(this.lines, fresh) : this.lines;
    this.isFirst = false;
    this.lines = [...known, ...fresh].slice(-LINES_MAX);
  }

  end(): void {
    if (this.rest) this.add("\n");
  }

  /** `worker-0 | 17 text`, or without several tasks `17 text`. */
  private line(raw: string): LogLine {
    const mark = this.isLabelled ? raw.indexOf(" | ") : -1;
    const numbered = mark < 0 ? raw : raw.slice(mark + 3);
    const space = numbered.indexOf(" ");
    return {
      number: Number(numbered.slice(0, space)),
      task: mark < 0 ? "" : raw.slice(0, mark).trim(),
      text: clean(numbered.slice(space + 1)),
    };
  }
}

/** What was read before a connection broke, as far as it does not come again with the next one. */
function before(known: readonly LogLine[], fresh: readonly LogLine[]): readonly LogLine[] {
  const first = new Map<string, number>();
  for (const { task, number } of fresh) first.set(task, Math.min(number, first.get(task) ?? Infinity));
  return known.filter(({ task, number }) => number < (first.get(task) ?? Infinity));
}

// Colours of terminals, and what comes before a carriage return, as bars of progress write.
const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007/g;

export function clean(text: string): string {
  const plain = text.replace(ESCAPES, "").replace(/\r$/, "");
  return plain.slice(plain.lastIndexOf("\r") + 1);
}

export function filterLines(lines: readonly LogLine[], task: string, words: string): readonly LogLine[] {
  if (!task && !words) return lines;
  const wanted = words.toLowerCase();
  return lines.filter((line) => (!task || line.task === task) && (!wanted || line.text.toLowerCase().includes(wanted)));
}

/** True if a task has written more before the first of its lines here. */
export function isCut(lines: readonly LogLine[]): boolean {
  const seen = new Set<string>();
  for (const { task, number } of lines) {
    if (!seen.has(task) && number > 1) return true;
    seen.add(task);
  }
  return false;
}
