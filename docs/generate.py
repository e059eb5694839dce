"""Write the pages that follow from the code: `python docs/generate.py` (a test says when they are out of date)."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from skep.jobs import table as jobs
from skep.jobs.search import SEARCH
from skep.policies.common import common_knobs
from skep.policies.place import PLACES
from skep.policies.registry import ROUND, Knob, Policy, policies, shown_needs, shown_value
from skep.server.schema import openapi

README = Path(__file__).parent.parent / "README.md"
PAGE = Path(__file__).parent / "reference" / "policies.md"
API = Path(__file__).parent / "reference" / "api.md"
JOBS = Path(__file__).parent / "reference" / "jobs.md"
COMMON = {knob.name: knob for knob in (*common_knobs(walk="skip"), ROUND)}

HEAD = """\
# Policies

<!-- Written by docs/generate.py from the registry: change the policies, not this page. -->

A policy is named `NAME:key=value,key=value`, lists with `+`: `tiresias-l:queues=3250+7200,place=any`. A policy in a
file of one's own is named `./file.py:Class:key=value` ([guide](../guides/write-a-policy.md)). `skep policies NAME`
prints the same as this page.
"""

EVERY = """\
## Knobs of every policy

The defaults differ and are given with each policy.
"""


def policies_page() -> str:
    found = policies()
    parts = [HEAD, overview(found), EVERY, knob_table(tuple(COMMON.values()), with_default=False), placements()]
    parts += [section(policy) for policy in found.values()]
    return "\n".join(parts)


def overview(found: dict[str, Policy]) -> str:
    rows = ["| policy | in a sentence | assumes |", "|---|---|---|"]
    for name, policy in found.items():
        rows.append(f"| [`{name}`](#{name}) | {cell(policy.title)} | {shown_needs(policy.needs())} |")
    return "\n".join(rows) + "\n"


def placements() -> str:
    rows = ["## Placements", "", "| `place=` | which GPUs a job gets |", "|---|---|"]
    rows += [f"| `{name}` | {cell(inspect.getdoc(place) or '')} |" for name, place in PLACES.items()]
    return "\n".join(rows) + "\n"


def section(policy: Policy) -> str:
    defaults = [f"`{knob.name}={shown_value(knob.default)}`" for knob in policy.knobs if knob.name in COMMON]
    own = tuple(knob for knob in policy.knobs if knob.name not in COMMON)
    lines = [
        f"## {policy.name}\n",
        f"{policy.title}\n",
        f"- Paper: {policy.paper}",
        f"- Assumes: {shown_needs(policy.needs())}",
        f"- Defaults: {', '.join(defaults)}\n",
    ]
    return "\n".join(lines) + ("\n" + knob_table(own) if own else "")


def knob_table(knobs: tuple[Knob, ...], *, with_default: bool = True) -> str:
    heads = ["knob", "default", "what it does"] if with_default else ["knob", "what it does"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for knob in knobs:
        choices = f" ({', '.join(f'`{choice}`' for choice in knob.shown_choices)})" if knob.choices else ""
        cells = [
            f"`{knob.name}`",
            *([f"`{shown_value(knob.default)}`"] if with_default else []),
            cell(knob.help + choices),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Job files --------------------------------------------------------------------------------------------------------

TABLES = {
    "job": jobs.JOB,
    "role": jobs.ROLE,
    "group": jobs.GROUP,
    "share": jobs.SHARE,
    "kubernetes": jobs.KUBERNETES,
    "search": SEARCH,
}


def jobs_page() -> str:
    """The page of job files with its tables of fields made anew."""
    made = {name: f"<!-- fields: {name} -->\n{field_table(table)}<!-- end -->" for name, table in TABLES.items()}
    text = JOBS.read_text("utf-8")
    return re.sub(r"<!-- fields: (\w+) -->.*?<!-- end -->", lambda match: made[match[1]], text, flags=re.DOTALL)


def field_table(table: jobs.Table) -> str:
    rows = ["| field | value | meaning | default |", "|---|---|---|---|"]
    for name, field in table.items():
        cells = (f"`{name}`", cell(field.kind.words), cell(field.help), cell(jobs.shown_default(table, name)))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


# The session of the README ---------------------------------------------------------------------------------------


def readme_page() -> str:
    """The README with what its commands print now; a command that shows nothing goes on showing nothing."""
    text = README.read_text("utf-8")
    start = text.index("```console\n") + len("```console\n")
    end = text.index("```", start)
    steps = re.split(r"^(?=\$ skep )", text[start:end], flags=re.MULTILINE)[1:]
    with tempfile.TemporaryDirectory() as folder:
        told = [played(step, folder) for step in steps]
    return text[:start] + "".join(told) + text[end:]


def played(step: str, folder: str) -> str:
    command, _, shown = step.partition("\n")
    line = [sys.executable, "-m", "skep.cli.main", *shlex.split(command.removeprefix("$ skep "))]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    printed = "".join(f"{row.rstrip()}\n" for row in (done.stderr + done.stdout).splitlines())
    return f"{command}\n" + (printed if shown else "")


# The API ---------------------------------------------------------------------------------------------------------

API_HEAD = """\
# The API, address by address

<!-- Written by docs/generate.py from the schema of the API: change src/skep/server, not this page. -->

`/openapi.json` of a server has the same for programs. [The server](server.md) says who may do what, what errors mean,
and how lists, streams and sessions work. A type in `code` is a shape below; `?` behind a field: it may be missing.
"""
METHODS = ("get", "post", "put", "patch", "delete")


def api_page() -> str:
    schema = openapi()
    paths = [(path, method, at[method]) for path, at in schema["paths"].items() for method in METHODS if method in at]
    parts = [API_HEAD]
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in paths):
        parts.append(f"## {tag.capitalize()}\n")
        parts += [operation_text(*each) for each in paths if each[2]["tags"][0] == tag]
    parts.append("## Shapes\n")
    parts += [shape_text(name, shape) for name, shape in sorted(schema["components"]["schemas"].items())]
    return "\n".join(parts)


def operation_text(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"**`{method.upper()} {path}`** → {answer_text(operation)}", ""]
    if operation.get("description"):
        lines += [cell(operation["description"]), ""]
    given = [each for each in operation.get("parameters", []) if each["in"] != "path"]
    lines += [f"- `{each['name']}`{parameter_text(each)}" for each in given]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    lines += [f"- body: {type_text(body)}"] if "$ref" in body else []
    return "\n".join(lines).rstrip("\n") + "\n"


def answer_text(operation: dict[str, Any]) -> str:
    found = [answer for code, answer in sorted(operation["responses"].items()) if code.startswith("2")]
    kinds = [pair for answer in found for pair in answer.get("content", {}).items()]
    return ", or ".join(type_text(at["schema"]) if kind == "application/json" else kind for kind, at in kinds)


def parameter_text(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    default = f" = {str(schema['default']).lower()}" if schema.get("default") not in (None, "", []) else ""
    where = " (header)" if parameter["in"] == "header" else ""
    said = cell(parameter.get("description", ""))
    return f"{where} {type_text(schema)}{default}" + (f": {said}" if said else "")


def type_text(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"[`{(name := schema['$ref'].rpartition('/')[2])}`](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_text(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " \\| ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {type_text(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {type_text(schema['additionalProperties'])}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def shape_text(name: str, shape: dict[str, Any]) -> str:
    lines = [f"### {name}", ""]
    if shape.get("description"):
        lines += [cell(shape["description"]), ""]
    needed = shape.get("required", [])
    for field, schema in shape.get("properties", {}).items():
        said = cell(schema.get("description", ""))
        mark = "" if field in needed else "?"
        lines.append(f"- `{field}`{mark} {type_text(schema)}" + (f": {said}" if said else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    API.write_text(api_page(), encoding="utf-8")
    PAGE.write_text(policies_page(), encoding="utf-8")
    JOBS.write_text(jobs_page(), encoding="utf-8")
    README.write_text(readme_page(), encoding="utf-8")
    print(f"wrote {PAGE}, {API}, the tables of {JOBS} and the session of {README}")
