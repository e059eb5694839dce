// The fields of the form, as places in the job file. What the form does not know stays in the file as it is.
import { parseDocument, type Document } from "yaml";

export interface Field {
  path: readonly string[];
  label: string;
  kind: "text" | "number" | "long" | "flag" | "list";
  hint?: string;
  /** Belongs to a role, so that it has no place on top where roles are named. */
  isOfRole?: boolean;
}

export const FIELDS: readonly Field[] = [
  { path: ["name"], label: "Name", kind: "text" },
  { path: ["command"], label: "Command", kind: "long", isOfRole: true },
  { path: ["gpus"], label: "GPUs", kind: "number", isOfRole: true },
  { path: ["vc"], label: "Virtual cluster", kind: "text" },
  { path: ["priority"], label: "Priority", kind: "number", hint: "−1 to 1000, oppo, test, prod" },
  { path: ["workdir"], label: "Folder", kind: "text", hint: "where the command runs" },
  { path: ["gpu_type"], label: "GPU type", kind: "text", isOfRole: true },
  { path: ["cpu"], label: "CPUs", kind: "number", isOfRole: true },
  { path: ["memory_gib"], label: "Memory in GiB", kind: "number", isOfRole: true },
  { path: ["retries"], label: "Retries", kind: "number" },
  { path: ["time_limit_s"], label: "Time limit", kind: "text", hint: "seconds, or such as 2h" },
  { path: ["tags"], label: "Tags", kind: "list", hint: "separated by commas" },
  { path: ["preemptible"], label: "Preemptible", kind: "flag" },
  { path: ["hold"], label: "Hold it at first", kind: "flag" },
];

/** The file, or nothing where it cannot be read as one mapping; the form is then at rest. */
export function readDocument(text: string): Document | null {
  const document = parseDocument(text, { keepSourceTokens: false });
  const isMapping = document.errors.length === 0 && (document.contents === null || "items" in document.contents);
  return isMapping && typeof (document.toJS() ?? {}) === "object" && !Array.isArray(document.toJS()) ? document : null;
}

export function valueOf(document: Document, field: Field): string {
  const value: unknown = document.getIn(field.path);
  if (value === undefined || value === null) return "";
  const plain: unknown =
    typeof value === "object" && "toJSON" in value ? (value as { toJSON: () => unknown }).toJSON() : value;
  return Array.isArray(plain) ? plain.join(", ") : String(plain);
}

/** The file with one field changed; comments and all else stay. */
export function withValue(document: Document, field: Field, typed: string): string {
  if (typed.trim() === "") document.deleteIn(field.path);
  else document.setIn(field.path, parsed(field, typed));
  return document.toString({ lineWidth: 0 });
}

function parsed(field: Field, text: string): unknown {
  if (field.kind === "flag") return text === "true";
  if (field.kind === "list")
    return text
      .split(",")
      .map((part) => part.trim())
      .filter(Boolean);
  if (field.kind === "number" && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  return text;
}
