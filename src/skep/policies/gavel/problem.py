"""The question that the Gavel policies ask, and its answer: values that a process beside the scheduler can take."""

from __future__ import annotations

import msgspec


class ShareRow(msgspec.Struct, frozen=True, array_like=True):
    """A job, or `count` equal ones. Times are seconds, work is in seconds at the job's reference."""

    gpus: float
    weight: float
    count: int
    speeds: tuple[float, ...]
    """Work per second by type, in the order of the widths; 0 where it cannot run."""
    scale: float = 1.0
    """Training steps in a second of work; 1 if not known. Only `compat` asks: its solver sees raw units."""
    left_s: float = 0.0
    age_s: float = 0.0
    alone_s: float = 0.0
    """What the work done so far would have taken on an equal part of the cluster."""
    due_s: float = 0.0
    """Time to its deadline; 0: it has none."""
    place: int = 0
    """Its place in the order of submission: 0 is the first."""
    entity: str = ""


class PairRow(msgspec.Struct, frozen=True, array_like=True):
    """Two jobs, by their rows, that may run at the same time on the same GPUs; both may be of one row of equal jobs."""

    one: int
    other: int
    parts: tuple[tuple[float, float], ...]
    """For each type the parts of their speeds that are left to them; 0: not there."""


class ShareProblem(msgspec.Struct, frozen=True):
    objective: str
    widths: tuple[float, ...]
    """GPUs of each type."""
    rows: list[ShareRow]
    jobs: dict[int, int]
    """The row of each job, by seq."""
    is_compat: bool = False
    is_aware: bool = True
    is_strategy_proof: bool = False
    costs: tuple[float, ...] = ()
    """Of an hour of a GPU of each type."""
    inside: str = "fair"
    """How an entity divides its part among its jobs."""
    entities: dict[str, float] = {}
    """Weights."""
    pairs: list[PairRow] = []


class PairShare(msgspec.Struct, frozen=True, array_like=True):
    """The part of the time that a job of one row runs on each type beside one of the other, and the same of that."""

    one: int
    other: int
    of_one: tuple[float, ...]
    of_other: tuple[float, ...]


class TimeShares(msgspec.Struct, frozen=True):
    """The part of the time that a job runs on each type, by row."""

    rows: list[tuple[float, ...]]
    jobs: dict[int, int]
    pairs: list[PairShare] = []

    def of(self, seq: int) -> tuple[float, ...] | None:
        row = self.jobs.get(seq)
        return None if row is None else self.rows[row]
