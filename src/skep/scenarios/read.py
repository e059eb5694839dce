"""Scenario files: a cluster layout, requests in order, and the expected result of each.

The schema is that of HiveD's recorded cases, in JSON or in YAML. A scenario contains its configuration (`config`) or
names a cluster file beside it (`cluster`). Recorded cases state how far their answers are certain (`robustPrefix`) and
may contain unknown fields; in a hand-written scenario an unknown field is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.clusters.hived import parse_layout
from skep.clusters.read import read_layout
from skep.core.cells.layout import CellSpec, Layout
from skep.core.errors import InputError, did_you_mean
from skep.files.document import Field, read_document
from skep.files.text import load_text, shorten
from skep.scenarios.values import parse_json, plain

WHAT = "a scenario (JSON or YAML)"
SUFFIXES = (".json", ".yaml", ".yml")
SIZE_MAX = 50_000_000
KINDS = ("schedule", "config-parse", "config-error")

OF_SCENARIO = ("id", "description", "kind", "config", "cluster", "nodes", "steps")
OF_STEP = {
    "schedule": ("pod", "spec", "rawAnnotation", "phase", "suggestedNodes", "commit"),
    "delete": ("pod", "was"),
    "node_bad": ("node",),
    "node_healthy": ("node",),
    "restart": ("config", "cluster", "replayOrder"),
    "reconfigure": ("config", "cluster", "replayOrder"),
    "inspect": (),
    "listGroups": (),
}
NEEDED = {"schedule": "pod", "delete": "pod", "node_bad": "node", "node_healthy": "node"}
PHASES = ("Filtering", "Preempting")


class Step(msgspec.Struct):
    """One request or event; `given` is its content in the file."""

    number: int
    """From 1."""
    where: str
    """File, line if known, and number: the beginning of error messages about it."""
    op: str
    given: dict[str, Any]
    expect: dict[str, Any] | None = None
    layout: Layout | None = None


class Scenario(msgspec.Struct):
    id: str
    file: str
    kind: str
    description: str = ""
    layout: Layout | None = None
    refused: str = ""
    """Why there is no layout."""
    nodes: list[str] | None = None
    """The nodes that are healthy at first; None: all."""
    steps: list[Step] = []
    robust: int | None = None
    """For a recorded case: the answers to this many first steps depend on no tie."""
    source: str = ""
    expect_refused: str = ""
    """For a configuration that should be refused: the class of its error."""


def find_files(paths: Iterable[str | Path]) -> tuple[list[Path], int]:
    """All files that may be scenarios, each once, and how many are skipped because of their name."""
    found: dict[Path, Path] = {}
    passed = 0
    for path in map(Path, paths):
        if not path.is_dir():
            found.setdefault(path.resolve(), path)
            continue
        for file in sorted(path.rglob("*")):
            if not file.is_file() or any(part.startswith(".") for part in file.relative_to(path).parts):
                continue
            if file.suffix.lower() in SUFFIXES:
                found.setdefault(file.resolve(), file)
            else:
                passed += 1
    return list(found.values()), passed


def read_scenario(path: str | Path) -> Scenario | None:
    """The scenario of a file; None if the file is of another kind."""
    shown = str(path)
    is_json = shown.lower().endswith(".json")
    text = load_text(path, what=WHAT, size_max=SIZE_MAX if is_json else SIZE_MAX // 5)
    if is_json:
        values = parse_json(text, shown)
        return _Reader(shown, values, None).read() if is_scenario(values) else None
    document = read_document(text, shown)
    if not document.is_mapping or not {"steps", "kind"} & document.fields().keys():
        return None  # for example a cluster file, whose conversion would be wasted
    values = plain(document)
    return _Reader(shown, values, document).read() if is_scenario(values) else None


def is_scenario(values: Any) -> bool:
    if not isinstance(values, dict):
        return False
    kind = values.get("kind", "schedule")
    if kind == "schedule":
        return "steps" in values
    return kind in KINDS and "config" in values


class _Reader:
    """Reads one file. `document` is the same as `values` with line numbers."""

    def __init__(self, file: str, values: dict[str, Any], document: Field | None) -> None:
        self.file = file
        self.values = values
        self.fields = document.fields() if document is not None else {}
        self.is_recorded = "robustPrefix" in values
        self.known_nodes: set[str] = set()
        self.asked: set[str] = set()
        """Pods that have appeared."""

    def read(self) -> Scenario:
        values = self.values
        found = Scenario(
            id=self._text("id") or Path(self.file).stem,
            file=self.file,
            kind=values.get("kind", "schedule"),
            description=self._text("description"),
            source=self._text("source"),
        )
        if found.kind == "schedule":
            self._read_schedule(found)
        else:
            self._set_layout(found)
            wrong = values.get("expectConfigError")
            reason = wrong.get("reasonClass") if isinstance(wrong, dict) else None
            found.expect_refused = str(reason or "refused") if found.kind == "config-error" else ""
        return found

    def _read_schedule(self, found: Scenario) -> None:
        values = self.values
        if not self.is_recorded:
            refuse_unknown(values, OF_SCENARIO, self.file, "key")
        robust = values.get("robustPrefix")
        found.robust = robust if isinstance(robust, int) else None
        self._set_layout(found)
        if found.refused and not self.is_recorded:
            raise InputError(found.refused)
        if "nodes" in values:
            found.nodes = texts(values["nodes"], self.file, "nodes")
            self._refuse_nodes(found.nodes, self.file)
        steps = values["steps"]
        if not isinstance(steps, list):
            raise InputError(f"{self.file}: steps is not a list")
        fields = self.fields["steps"].items() if self.fields else [None] * len(steps)
        read = [self._step(at, item, fields[at - 1]) for at, item in enumerate(steps, start=1)]
        found.steps = read

    def _set_layout(self, found: Scenario) -> None:
        try:
            found.layout = self._layout(self.values, self.fields, self.file)
        except InputError as error:
            found.refused = str(error)
            return
        if found.layout is None:
            raise InputError(f"{self.file}: config is missing", hint="or name a cluster file: `cluster: lab.yaml`")

    def _layout(self, values: dict[str, Any], fields: dict[str, Field], where: str) -> Layout | None:
        """Of `config`, or of the file that `cluster` names."""
        layout = None
        if "config" in values and "cluster" in values:
            raise InputError(f"{where}: config and cluster are both given, expected one")
        if "config" in values:
            config = fields.get("config") or values["config"]
            if not isinstance(config, Field | dict):
                raise InputError(f"{where}: config is not a mapping")
            layout = parse_layout(config, f"{where}: config")
        elif "cluster" in values:
            named = values["cluster"]
            if not isinstance(named, str) or not named.strip() or "\0" in named:
                raise InputError(f"{where}: cluster is {shorten(repr(named))}, expected the path of a cluster file")
            layout = read_layout(str(Path(self.file).parent / named))
        if layout is not None:
            self.known_nodes |= set(nodes_of(layout.cells))
        return layout

    def _step(self, number: int, given: Any, field: Field | None) -> Step:
        where = f"{self.file}:{field.raw.line}: step {number}" if field is not None else f"{self.file}: step {number}"
        if not isinstance(given, dict):
            raise InputError(f"{where}: is not a mapping")
        op = given.get("op")
        if not isinstance(op, str) or op not in OF_STEP:
            near = did_you_mean(op, OF_STEP, start=", ") if isinstance(op, str) else ""
            problem = f"unknown op {shorten(repr(op))}{near}" if "op" in given else "op is missing"
            raise InputError(f"{where}: {problem}", hint=f"expected one of {', '.join(OF_STEP)}")
        if not self.is_recorded:
            refuse_unknown(given, ("op", "expect", *OF_STEP[op]), where, "key")
        step = Step(number, where, op, given, self._expect(given, where))
        self._check(step)
        if op in ("restart", "reconfigure"):
            step.layout = self._layout(given, field.fields() if field is not None else {}, where)
            if step.layout is None and op == "reconfigure":
                raise InputError(f"{where}: config is missing")
        return step

    def _expect(self, given: dict[str, Any], where: str) -> dict[str, Any] | None:
        expect = given.get("expect")
        if expect is not None and not isinstance(expect, dict):
            raise InputError(f"{where}: expect is not a mapping", hint="for example `expect: {result: wait}`")
        return expect

    def _check(self, step: Step) -> None:
        given, where = step.given, step.where
        needed = NEEDED.get(step.op)
        if needed is not None and not isinstance(given.get(needed), str):
            # A node or a pod may be called 7; JSON and YAML would read a number.
            if isinstance(given.get(needed), bool) or not isinstance(given.get(needed), int):
                problem = "is missing" if given.get(needed) is None else "is not a name"
                raise InputError(f"{where}: {needed} {problem}")
            given[needed] = str(given[needed])
        if step.op == "schedule":
            self._check_schedule(given, where)
        elif step.op == "delete" and not self.is_recorded and given["pod"] not in self.asked:
            raise InputError(f"{where}: there is no pod {shorten(given['pod'])} before this step")
        elif needed == "node":
            self._refuse_nodes([given["node"]], where)
        if "replayOrder" in given:
            given["replayOrder"] = texts(given["replayOrder"], where, "replayOrder")

    def _check_schedule(self, given: dict[str, Any], where: str) -> None:
        self.asked.add(given["pod"])
        if ("spec" in given) == ("rawAnnotation" in given) and not self.is_recorded:
            raise InputError(f"{where}: expected either spec or rawAnnotation")
        if given.get("phase", "Filtering") not in PHASES:
            raise InputError(f"{where}: phase is {shorten(repr(given['phase']))}, expected {' or '.join(PHASES)}")
        if not isinstance(given.get("commit", True), bool):
            raise InputError(f"{where}: commit is {shorten(repr(given['commit']))}, expected true or false")
        if given.get("suggestedNodes", "all") != "all":
            given["suggestedNodes"] = texts(given["suggestedNodes"], where, "suggestedNodes")
            self._refuse_nodes(given["suggestedNodes"], where)

    def _refuse_nodes(self, nodes: list[str], where: str) -> None:
        """Recorded cases name nodes that only a later configuration has; elsewhere it is a typing error."""
        for node in nodes:
            if not self.is_recorded and node not in self.known_nodes:
                near = did_you_mean(node, self.known_nodes, start=", ")
                raise InputError(f"{where}: there is no node {shorten(node)}{near}")

    def _text(self, key: str) -> str:
        value = self.values.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise InputError(f"{self.file}: {key} is not text")
        return "" if value is None else str(value)


def refuse_unknown(values: dict[str, Any], known: Iterable[str], where: str, what: str) -> None:
    names = list(known)
    for key in values:
        if key not in names:
            near = did_you_mean(str(key), names, start=", ")
            problem = f"{where}: unknown {what} {shorten(str(key))}{near}"
            raise InputError(problem, hint=f"known are {', '.join(names)}")


def texts(values: Any, where: str, key: str) -> list[str]:
    if not isinstance(values, list) or not all(type(item) in (str, int) for item in values):
        raise InputError(f"{where}: {key} is not a list of names")
    return [str(item) for item in values]


def nodes_of(cells: list[CellSpec]) -> Iterator[str]:
    """The names of all nodes, a node again for each chain it has devices of."""
    for cell in cells:
        if cell.node:
            yield cell.node
        else:
            yield from nodes_of(cell.children)
