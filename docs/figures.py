"""Figures in pages that a command produces: `python docs/figures.py PAGE …` writes them, tests compare them.

A mark above a table says where its figures come from. A command that prints the table itself:

    <!-- figures: python -m bench.shapes antman -->

A command that prints JSON, for each row anew. `{policy}` is the row's cell in the column "policy"; behind `|` stand the
columns that are figures and the fields they come from, divided by a number where the unit differs. Other columns
(seconds, for example, which depend on the machine) are left alone.

    <!-- figures: skep simulate philly.csv --cluster 56x8 --policy {policy} --json | wait (h) = queue_avg_s / 3600 -->

Several results of one command (seeds) are shown as the smallest and the largest. Published files are found in
`../shared/data`. Figures that take minutes say so, `<!-- figures (minutes): …`: the tests compare them with
`SKEP_FIGURES=all`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
MARK = re.compile(
    r"<!-- figures(?P<long> \(minutes\))?: (?P<command>.+?)(?: \| (?P<columns>.+?))? -->\n\n?(?P<table>(?:\|.*\n)+)"
)
PUBLISHED = re.compile(r"\b(?:philly|openb_\w+)\.csv\b")


class NoData(Exception):
    """A published file that is not here."""


@dataclass(frozen=True)
class Figures:
    """Figures that one command produces: a row of a table, or a whole table."""

    command: str
    columns: dict[str, str]
    """Heading of each figure and where it comes from; none: the command prints the table."""
    heads: tuple[str, ...]
    lines: str
    """As they are on the page."""
    takes_minutes: bool

    def computed(self) -> str:
        """The same lines with the figures of today."""
        if not self.columns:
            return printed(self.command)
        cells = cells_of(self.lines)
        row = dict(zip(self.heads, cells, strict=True))
        found = json.loads(printed(re.sub(r"\{([^}]+)\}", lambda match: row[match[1]].strip("`"), self.command)))
        for name, source in self.columns.items():
            row[name] = shown(found if isinstance(found, list) else [found], source, like=row[name])
        return f"| {' | '.join(row.values())} |\n"


def figures_on(text: str) -> Iterator[Figures]:
    for mark in MARK.finditer(text):
        head, rule, *rows = mark["table"].splitlines(keepends=True)
        columns = dict(each.strip().split(" = ") for each in (mark["columns"] or "").split(";") if each)
        parts = rows if columns else ["".join((head, rule, *rows))]
        for part in parts:
            yield Figures(mark["command"], columns, tuple(cells_of(head)), part, takes_minutes=bool(mark["long"]))


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def shown(found: list[dict[str, Any]], source: str, *, like: str) -> str:
    """The value with as many decimals as the page has."""
    field, _, unit = source.partition(" / ")
    values = [each[field] / float(unit or 1) for each in found]
    decimals = len(re.split(r"\D", like.rpartition(".")[2])[0]) if "." in like else 0
    return " to ".join(f"{value:,.{decimals}f}" for value in sorted({min(values), max(values)}))


def printed(commands: str) -> str:
    """What the last of these commands prints."""
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        for command in commands.split(" && "):
            program, *words = shlex.split(PUBLISHED.sub(lambda match: str(published(match[0])), command))
            line = [sys.executable, *(words if program == "python" else ["-m", "skep.cli.main", *words])]
            done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def published(name: str) -> Path:
    if not (found := sorted(DATA.glob(f"*/{name}"))):
        raise NoData(f"{name} is not in {DATA}")
    return found[0]


def main() -> None:
    for page in map(Path, sys.argv[1:]):
        text = page.read_text("utf-8")
        for each in figures_on(text):
            text = text.replace(each.lines, each.computed())
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
