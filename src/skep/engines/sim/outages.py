"""When nodes fail and come back: from a file, or drawn from a seed."""

from __future__ import annotations

import csv
import heapq
import io
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from skep.core.chance import draw
from skep.core.cluster import Cluster
from skep.core.errors import InputError, did_you_mean
from skep.files.text import load_text, shorten

FORMS = "mtbf=30d,repair=4h (seconds, or with s, m, h, d), or a CSV file of node,down_s,up_s"
COLUMNS = ["node", "down_s", "up_s"]
UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
TIME_MAX_S = 1e12


class Outages:
    """A calendar of node changes. A drawn one has no end: each node's next change is drawn when one happens."""

    def __init__(self, changes: Iterable[tuple[float, int, bool]] = ()) -> None:
        self.calendar = list(changes)
        """(at_s, node, is lost)"""
        heapq.heapify(self.calendar)
        self.down: set[int] = set()
        self.mtbf_s = math.inf
        self.repair_s = 0.0
        self.seed = 0
        self.draws: dict[int, int] = {}
        self._set_next()

    @classmethod
    def none(cls) -> Outages:
        return cls()

    @classmethod
    def drawn(cls, node_count: int, *, mtbf_s: float, repair_s: float, seed: int, since_s: float = 0.0) -> Outages:
        """Every node works for an exponential time of mean `mtbf_s`, then is down for one of mean `repair_s`."""
        outages = cls()
        outages.mtbf_s, outages.repair_s, outages.seed = mtbf_s, repair_s, seed
        for node in range(node_count):
            outages._push(since_s, node, is_lost=True)
        outages._set_next()
        return outages

    def _set_next(self) -> None:
        self.next_s = self.calendar[0][0] if self.calendar else math.inf

    @property
    def all_up(self) -> bool:
        return not self.down

    def take(self, at_s: float) -> list[tuple[int, bool]]:
        """The changes of this instant: (node, is lost)."""
        changes = []
        while self.calendar and self.calendar[0][0] == at_s:
            _, node, is_lost = heapq.heappop(self.calendar)
            changes.append((node, is_lost))
            if is_lost:
                self.down.add(node)
            else:
                self.down.discard(node)
            if self.mtbf_s < math.inf:
                self._push(at_s, node, is_lost=not is_lost)
        self._set_next()
        return changes

    def _push(self, now_s: float, node: int, *, is_lost: bool) -> None:
        number = self.draws[node] = self.draws.get(node, 0) + 1
        unit = (draw(self.seed, node, number) + 1) / 2**64
        mean_s = self.mtbf_s if is_lost else self.repair_s
        heapq.heappush(self.calendar, (now_s - math.log(unit) * mean_s, node, is_lost))


def parse_failures(text: str, cluster: Cluster, *, seed: int, since_s: float = 0.0) -> Outages:
    """The outages of `mtbf=S,repair=S`, drawn from the seed for the time since, or of a file `node,down_s,up_s`."""
    if re.match(r"\s*\w*\s*=", text):
        means = _parse_means(text)
        mtbf_s, repair_s = means["mtbf"], means["repair"]
        return Outages.drawn(len(cluster.nodes), mtbf_s=mtbf_s, repair_s=repair_s, seed=seed, since_s=since_s)
    rows = _rows(load_text(text, what=FORMS), text)
    periods = [_period(where, cells, cluster) for where, cells in rows]
    _check_apart(periods, cluster)
    lost = [(period.down_s, period.node, True) for period in periods]
    back = [(period.up_s, period.node, False) for period in periods if period.up_s < math.inf]
    return Outages(lost + back)


def _parse_means(text: str) -> dict[str, float]:
    means: dict[str, float] = {}
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        where = f"failures {shorten(text)}"
        if not sign or key not in ("mtbf", "repair"):
            near = did_you_mean(key, ("mtbf", "repair"), start=", ")
            raise InputError(f"{where}: unknown part {shorten(part) or 'between commas'}{near}", hint=FORMS)
        if key in means:
            raise InputError(f"{where}: {key} is given twice", hint=FORMS)
        means[key] = _duration(where, key, value)
    for key in ("mtbf", "repair"):
        if key not in means:
            raise InputError(f"failures {shorten(text)}: {key} is missing", hint=FORMS)
    return means


def _duration(where: str, key: str, value: str) -> float:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+|[0-9]+\.)(?:[eE]\+?([0-9]{1,2}))?([smhd]?)", value)
    if match is not None:
        duration_s = float(match[1]) * 10.0 ** int(match[2] or 0) * UNITS_S[match[3]]
        if 0 < duration_s <= TIME_MAX_S:
            return duration_s
    shown = shorten(value) or "empty"
    raise InputError(f"{where}: {key} is {shown}, expected a time above 0 such as 3600, 90m or 30d", hint=FORMS)


class Period(NamedTuple):
    """One outage of a node; `where` is its line, for messages."""

    node: int
    down_s: float
    up_s: float
    where: str


def _rows(text: str, path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(file and line, cells) of every row below the header."""
    reader = csv.reader(io.StringIO(text, newline=""))
    columns: list[str] = []
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not columns:
                columns = cells
                if sorted(columns) != sorted(COLUMNS):
                    found = shorten(",".join(columns))
                    raise InputError(f"{where}: columns are {found}, expected {','.join(COLUMNS)}", hint=FORMS)
                continue
            if len(cells) != len(columns):
                raise InputError(f"{where}: {len(cells)} cells, expected {len(columns)}")
            yield where, dict(zip(columns, cells, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: is not CSV: {error}") from None


def _period(where: str, cells: dict[str, str], cluster: Cluster) -> Period:
    name = cells["node"]
    if name not in cluster.by_name:
        near = did_you_mean(name, list(cluster.by_name)[:1000], start=", ")
        first = cluster.nodes[0].name
        hint = f"the cluster has {len(cluster.nodes):,} nodes, the first is {first}"
        raise InputError(f"{where}: node is {shorten(name) or 'empty'}, not in the cluster{near}", hint=hint)
    down_s = _moment(where, "down_s", cells["down_s"])
    up_s = _moment(where, "up_s", cells["up_s"]) if cells["up_s"] else math.inf
    if up_s <= down_s:
        raise InputError(f"{where}: up_s is {cells['up_s']}, expected more than down_s {cells['down_s']}")
    return Period(cluster.by_name[name].index, down_s, up_s, where)


def _moment(where: str, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if 0 <= value <= TIME_MAX_S and "_" not in cell:
        return value
    shown = shorten(cell) or "empty"
    raise InputError(f"{where}: {column} is {shown}, expected a number of seconds >= 0")


def _check_apart(periods: list[Period], cluster: Cluster) -> None:
    """A node that is down cannot fail; it may fail again at the moment it comes back."""
    last: dict[int, Period] = {}
    for period in sorted(periods):
        before = last.get(period.node)
        if before is not None and period.down_s < before.up_s:
            name = cluster.nodes[period.node].name
            other = f"line {before.where.rpartition(':')[2]}"
            raise InputError(f"{period.where}: node {name} is already down by {other}")
        last[period.node] = period
