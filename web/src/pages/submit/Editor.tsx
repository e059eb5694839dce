import { useRef } from "react";

import type { Schemas } from "../../api/client";

interface Props {
  text: string;
  problems: readonly Schemas["Problem"][];
  onChange: (text: string) => void;
}

/** A plain text area with line numbers; lines that are wrong are marked there. */
export function Editor({ text, problems, onChange }: Props) {
  const numbers = useRef<HTMLOListElement>(null);
  const wrong = new Set(problems.map((problem) => problem.line));
  const count = text.split("\n").length;
  return (
    <div className="editor">
      <ol ref={numbers} aria-hidden="true">
        {Array.from({ length: count }, (_, index) => (
          <li key={index} className={wrong.has(index + 1) ? "bad" : undefined}>
            {index + 1}
          </li>
        ))}
      </ol>
      <textarea
        aria-label="Job file"
        spellCheck={false}
        autoCapitalize="off"
        wrap="off"
        value={text}
        rows={Math.max(16, Math.min(34, count + 1))}
        aria-invalid={problems.length > 0}
        onChange={(event) => onChange(event.target.value)}
        onScroll={(event) => {
          if (numbers.current) numbers.current.style.transform = `translateY(${-event.currentTarget.scrollTop}px)`;
        }}
      />
    </div>
  );
}
