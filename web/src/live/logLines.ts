// The text of a log as lines, each with the task that wrote it.
export interface LogLine {
  number: number;
  task: string;
  text: string;
}

export const LINES_MAX = 20_000;

/** Takes text in pieces as they come; keeps the last lines. */
export class LogLines {
  lines: LogLine[] = [];
  private rest = "";
  private count = 0;

  /** `isLabelled`: each line begins with its task, as those of jobs with several tasks do. */
  constructor(private readonly isLabelled: boolean) {}

  add(piece: string): void {
    const parts = (this.rest + piece).split("\n");
    this.rest = parts.pop() ?? "";
    const fresh = parts.map((part) => this.line(part));
    this.lines = [...this.lines, ...fresh].slice(-LINES_MAX);
  }

  end(): void {
    if (this.rest) this.add("\n");
  }

  private line(raw: string): LogLine {
    this.count += 1;
    const text = clean(raw);
    const mark = this.isLabelled ? text.indexOf(" | ") : -1;
    if (mark < 0) return { number: this.count, task: "", text };
    return { number: this.count, task: text.slice(0, mark).trim(), text: text.slice(mark + 3) };
  }
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
