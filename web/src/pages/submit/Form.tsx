import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Document } from "yaml";

import type { Schemas } from "../../api/client";
import { vcsQuery } from "../../api/queries";
import { FIELDS, readDocument, valueOf, withValue, type Field } from "./fields";

interface Props {
  text: string;
  problems: readonly Schemas["Problem"][];
  /** The VC that the server takes, also where the file names none. */
  chosenVc: string | undefined;
  onChange: (text: string) => void;
}

export function Form({ text, problems, chosenVc, onChange }: Props) {
  const document = useMemo(() => readDocument(text), [text]);
  const { data: vcs = [] } = useQuery(vcsQuery);
  if (!document) return <p className="note">The file cannot be read as one job; the form waits until it can.</p>;
  const hasRoles = document.has("tasks");
  return (
    <div className="form">
      <datalist id="vcs">
        {vcs.map((vc) => (
          <option key={vc.name} value={vc.name} />
        ))}
      </datalist>
      {hasRoles ? <p className="note">This job has several roles; commands and GPUs of each are in the file.</p> : null}
      {FIELDS.filter((field) => !(hasRoles && field.isOfRole)).map((field) => (
        <One
          key={field.path.join(".")}
          field={field.path[0] === "vc" ? { ...field, hint: chosenVc } : field}
          document={document}
          problem={problemOf(field, problems)}
          onChange={onChange}
        />
      ))}
    </div>
  );
}

function problemOf(field: Field, problems: readonly Schemas["Problem"][]): string {
  const path = field.path.join(".");
  return problems.find((problem) => problem.path === path || problem.path.startsWith(`${path}.`))?.text ?? "";
}

function One({
  field,
  document,
  problem,
  onChange,
}: {
  field: Field;
  document: Document;
  problem: string;
  onChange: (text: string) => void;
}) {
  const value = valueOf(document, field);
  const change = (typed: string) => onChange(withValue(document, field, typed));
  if (field.kind === "flag") {
    return (
      <label className="row">
        <input
          type="checkbox"
          checked={value === "true" || (value === "" && field.path[0] === "preemptible")}
          onChange={(event) => change(String(event.target.checked))}
        />
        {field.label}
      </label>
    );
  }
  const common = { value, "aria-invalid": problem !== "", placeholder: field.hint };
  return (
    <label className={field.kind === "long" ? "field wide" : "field"}>
      <span>{field.label}</span>
      {field.kind === "long" ? (
        <textarea {...common} rows={4} spellCheck={false} onChange={(event) => change(event.target.value)} />
      ) : (
        <input
          {...common}
          list={field.path[0] === "vc" ? "vcs" : undefined}
          inputMode={field.kind === "number" ? "decimal" : undefined}
          onChange={(event) => change(event.target.value)}
        />
      )}
      {problem ? <span className="bad">{problem}</span> : null}
    </label>
  );
}
