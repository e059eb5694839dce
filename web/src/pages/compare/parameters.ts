// What differs between requests, field by field.
export interface Row {
  name: string;
  values: string[];
}

/** `{tasks: {main: {gpus: 1}}}` → `tasks.main.gpus: "1"`. */
export function flatten(value: unknown, path = ""): Map<string, string> {
  if (Array.isArray(value))
    return new Map([[path, value.map((item) => (typeof item === "string" ? item : JSON.stringify(item))).join(" ")]]);
  if (typeof value !== "object" || value === null) return new Map([[path, value === null ? "" : String(value)]]);
  const found = new Map<string, string>();
  for (const [key, inner] of Object.entries(value)) {
    for (const [name, text] of flatten(inner, path ? `${path}.${key}` : key)) found.set(name, text);
  }
  return found;
}

/** Fields in which all jobs of a sweep differ anyway. */
const OWN = new Set(["name", "of_group.index"]);

export function differences(requests: readonly object[], isAll: boolean): Row[] {
  const flat = requests.map((request) => flatten(request));
  const names = [...new Set(flat.flatMap((fields) => [...fields.keys()]))];
  const rows = names.map((name) => ({ name, values: flat.map((fields) => fields.get(name) ?? "") }));
  return rows.filter((row) => (isAll ? row.values.some(Boolean) : !OWN.has(row.name) && new Set(row.values).size > 1));
}
