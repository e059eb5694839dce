"""Gavel's table of throughputs (Narayanan et al., OSDI'20), read in its published form.

`{gpu type: {"('Model (batch size N)', gpus)": {"null": steps/s, "('Other', gpus)": [own, other]}}}`, where a
type such as `v100_unconsolidated` is for gangs on more than one node. A rate is the throughput where the job
is, divided by that at its reference. What the table leaves open is decided here:

- a model it does not have runs at rate 1, or in proportion to its GPUs where they are not as many as it asked for;
- a GPU type it does not have counts as the reference type;
- a number of GPUs it does not have: the throughput per GPU of the nearest number, times the GPUs;
- no figure for a spread gang of this model and type: that of the gang on one node;
- a throughput of 0 means that the model does not fit there. The rate is then 0 as well: the job holds its GPUs and
  gets nowhere. A tiny rate instead would turn an impossible placement into a plausible, very long job.
- pairs were measured on one GPU only, those of gangs are all 0 in the table. Two gangs that share take the
  figure of their models on one GPU; there 0 does mean that the two do not fit together.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from skep.core.errors import InputError
from skep.files.text import shorten
from skep.profiles.profile import FactorProfile, Neighbour, Situation, nearest_count, shared

REFERENCE_TYPE = "v100"
SPREAD = "_unconsolidated"

_HEAD = re.compile(r"""\s*\{\s*"[^"]*"\s*:\s*\{\s*"\(['\\]""")


class Row(NamedTuple):
    """One job type on one GPU type."""

    steps_per_s: float
    pairs: dict[tuple[str, int], float]
    """Own steps per second beside another job."""


Table = dict[str, dict[str, dict[int, Row]]]
"""GPU type → model → GPUs."""


def is_gavel_table(text: str) -> bool:
    return _HEAD.match(text) is not None


def read_gavel_table(text: str, path: str) -> GavelProfile:
    try:
        published: dict[str, dict[str, dict[str, Any]]] = msgspec.json.decode(
            text, type=dict[str, dict[str, dict[str, Any]]]
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not a table of throughputs: {error}") from None
    table: Table = {}
    for gpu_type, rows in published.items():
        models = table.setdefault(gpu_type.lower(), {})
        for key, cells in rows.items():
            where = f"{path}: {shorten(gpu_type)} {shorten(key)}"
            model, gpus = _job_type(where, key)
            models.setdefault(model, {})[gpus] = _row(where, cells)
    if REFERENCE_TYPE not in table:
        raise InputError(f"{path}: has no GPU type {REFERENCE_TYPE}, expected Gavel's table of throughputs")
    return GavelProfile(table)


def _row(where: str, cells: dict[str, Any]) -> Row:
    if "null" not in cells:
        raise InputError(f'{where}: "null" is missing, expected the steps/s of the job alone')
    alone = _throughput(where, cells["null"])
    pairs = {}
    for other, value in cells.items():
        if other != "null":
            if not isinstance(value, list) or len(value) != 2:
                raise InputError(f"{where} beside {shorten(other)}: expected two throughputs")
            pairs[_job_type(where, other)] = _throughput(where, value[0])
    return Row(alone, pairs)


def _throughput(where: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise InputError(f"{where}: is {shorten(repr(value))}, expected a number of steps/s >= 0")


def _job_type(where: str, key: str) -> tuple[str, int]:
    found = _parse_job_type(key)
    if found is None:
        raise InputError(f"{where}: {shorten(key)} is not a job type, expected ('Model', GPUs)")
    return found


@cache
def _parse_job_type(key: str) -> tuple[str, int] | None:
    """The keys are Python tuples as text."""
    if len(key) > 1000:
        return None
    try:
        found = ast.literal_eval(key)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    match found:
        case (str(model), int(gpus)) if gpus > 0:
            return model, gpus
    return None


class GavelProfile(FactorProfile):
    """The published table."""

    knows_sharing = True

    def __init__(self, table: Table) -> None:
        self.table = table

    def models(self) -> set[str]:
        return {model for models in self.table.values() for model in models}

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        """As measured, on one node; no other number of GPUs is substituted, because work is derived from it."""
        row = self.table.get(gpu_type or REFERENCE_TYPE, {}).get(model, {}).get(gpus)
        return None if row is None else row.steps_per_s

    def knows(self, model: str, gpu_type: str, neighbours: Iterable[Neighbour]) -> bool:
        rows = self.table.get(gpu_type, {}).get(model, {})
        return bool(rows) and all(any(other in row.pairs for row in rows.values()) for other in neighbours)

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        row = self._rows(model, gpu_type, is_spread=False).get(1)
        pair = None if row is None else row.pairs.get((other, 1))
        return pair / row.steps_per_s if row is not None and pair is not None and row.steps_per_s else None

    def rate(self, situation: Situation, levels: Sequence[str]) -> float:
        model, gpus = situation.model, situation.gpus
        reference = self._reference(situation)
        if not gpus:
            return 1.0
        if not reference:
            return gpus / situation.asked_gpus if situation.asked_gpus else 1.0
        alone = [
            self._alone(model, gpus, gpu_type, is_spread=situation.is_spread) or 0.0 for gpu_type in situation.types
        ]
        beside = [self._beside(model, gpus, gpu_type, situation) for gpu_type in situation.types]
        return min(one * other for one, other in zip(alone, beside, strict=True)) / reference

    def _reference(self, situation: Situation) -> float | None:
        """The reference of the job as requested. A type it cannot run on is replaced by the table's own reference."""
        for gpu_type in (situation.asked_type, REFERENCE_TYPE):
            found = self._alone(situation.model, situation.asked_gpus, gpu_type, is_spread=False)
            if found:
                return found
        return None

    def _alone(self, model: str, gpus: int, gpu_type: str, *, is_spread: bool) -> float | None:
        """Steps per second; None for a model that is not in the table."""
        rows = self._rows(model, gpu_type, is_spread=is_spread)
        if not rows:
            return None
        near = nearest_count(rows, gpus)
        return rows[near].steps_per_s * gpus / near

    def _rows(self, model: str, gpu_type: str, *, is_spread: bool) -> dict[int, Row]:
        """The measurement of the model in this situation, or in the nearest one."""
        known = gpu_type if gpu_type in self.table else REFERENCE_TYPE
        if is_spread:
            # The table repeats the figures of single GPUs there, which say nothing about spread gangs.
            rows = self.table.get(known + SPREAD, {}).get(model, {})
            gangs = {count: row for count, row in rows.items() if count > 1}
            if gangs:
                return gangs
        return self.table[known].get(model) or self.table[REFERENCE_TYPE].get(model, {})

    def _beside(self, model: str, gpus: int, gpu_type: str, situation: Situation) -> float:
        """The part of its speed that is left beside the neighbours on this type."""
        if not situation.neighbours:
            return 1.0
        rows = self._rows(model, gpu_type, is_spread=False)
        return shared([_pair(rows, gpus, name, count) for name, count in situation.neighbours], gpus)


def _pair(rows: dict[int, Row], gpus: int, other: str, other_gpus: int) -> float:
    for mine, theirs in ((gpus, other_gpus), (1, 1)):
        row = rows.get(mine)
        beside = None if row is None else row.pairs.get((other, theirs))
        if row is not None and beside is not None and row.steps_per_s and (beside or mine == 1):
            return beside / row.steps_per_s
    return 1.0
