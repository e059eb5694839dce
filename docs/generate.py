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

from skep.policies.common import common_knobs
from skep.policies.place import PLACES
from skep.policies.registry import Knob, Policy, policies, shown_value

README = Path(__file__).parent.parent / "README.md"
PAGE = Path(__file__).parent / "reference" / "policies.md"
COMMON = {knob.name: knob for knob in common_knobs(walk="skip")}

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
    rows += [f"| [`{name}`](#{name}) | {cell(policy.title)} | {policy.assumes} |" for name, policy in found.items()]
    return "\n".join(rows) + "\n"


def placements() -> str:
    rows = ["## Placements", "", "| `place=` | which gpus a job gets |", "|---|---|"]
    rows += [f"| `{name}` | {cell(inspect.getdoc(place) or '')} |" for name, place in PLACES.items()]
    return "\n".join(rows) + "\n"


def section(policy: Policy) -> str:
    defaults = [f"`{knob.name}={shown_value(knob.default)}`" for knob in policy.knobs if knob.name in COMMON]
    own = tuple(knob for knob in policy.knobs if knob.name not in COMMON)
    lines = [
        f"## {policy.name}\n",
        f"{policy.title}\n",
        f"- Paper: {policy.paper}",
        f"- Assumes: {policy.assumes}",
        f"- Defaults: {', '.join(defaults)}\n",
    ]
    return "\n".join(lines) + ("\n" + knob_table(own) if own else "")


def knob_table(knobs: tuple[Knob, ...], *, with_default: bool = True) -> str:
    heads = ["knob", "default", "what it does"] if with_default else ["knob", "what it does"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for knob in knobs:
        choices = f" ({', '.join(f'`{choice}`' for choice in knob.choices)})" if knob.choices else ""
        cells = [
            f"`{knob.name}`",
            *([f"`{shown_value(knob.default)}`"] if with_default else []),
            cell(knob.help + choices),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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


if __name__ == "__main__":
    PAGE.write_text(policies_page(), encoding="utf-8")
    README.write_text(readme_page(), encoding="utf-8")
    print(f"wrote {PAGE} and the session of {README}")
