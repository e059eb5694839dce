"""What the Gavel policies optimise: one small class for each objective.

An objective turns the table of speeds into shares of time. `merges` says whether equal jobs may be one row: not if what
is left of them matters.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from skep.policies.gavel.centre import Array, Centre, Program, centre
from skep.policies.gavel.problem import ShareProblem

USELESS = 1e-3
"""The price of a share on a type where the job makes no progress."""


class Table(NamedTuple):
    """The columns of the rows, and what is common."""

    speeds: Array
    gpus: Array
    weights: Array
    counts: Array
    widths: Array
    left: Array
    age: Array
    alone: Array
    due: Array
    places: Array
    problem: ShareProblem

    @property
    def jobs(self) -> float:
        return float(self.counts.sum())

    def program(
        self, gain: Array, base: Array, slope: Array, reward: Array | float = 0.0, start: Array | None = None
    ) -> Program:
        """With a small price for shares that are of no use, so that nothing is spent on them."""
        dead = np.where(self.speeds > 0, 0.0, -USELESS)
        return Program(gain, self.gpus, self.counts, self.widths, base, slope, reward + dead, start)

    def level(self, gain: Array) -> Array:
        """Shares whose smallest gain is largest."""
        rows = len(gain)
        return self.solved(self.program(gain, np.zeros(rows), np.ones(rows))).shares

    def best(self, reward: Array, base: Array | float = -1.0, start: Array | None = None) -> Array:
        """Shares with the largest reward in all, where no speed is below this."""
        rows = len(reward)
        most = max(float(np.abs(reward).max()), 1e-12)
        program = self.program(self.speeds, np.zeros(rows) + base, np.zeros(rows), reward / most, start)
        return self.solved(program).shares

    def solved(self, program: Program) -> Centre:
        """With pairs, their shares come after those of the rows."""
        if not self.problem.pairs:
            return centre(program)
        from skep.policies.gavel.packed import packed  # scipy and clarabel

        return packed(program, self)

    def equal_split(self) -> Array:
        """The speed of each row if all jobs ran the same part of the time, on each type by its GPUs."""
        part = self.widths / self.jobs
        return np.asarray(self.speeds @ (part / part.sum()))

    def isolated(self) -> Array:
        """The speed of each row alone on an equal part of every type."""
        part = self.widths / self.jobs / self.gpus[:, None]
        part /= np.maximum(part.sum(1), 1.0)[:, None]
        return np.asarray((self.speeds * part).sum(1))


def table_of(problem: ShareProblem) -> Table:
    rows = problem.rows
    columns = [
        np.array([getattr(row, name) for row in rows], dtype=float)
        for name in ("gpus", "weight", "count", "left_s", "age_s", "alone_s", "due_s", "place")
    ]
    gpus, weights, counts, *rest = columns
    left, age, alone, due, places = rest
    speeds = np.array([row.speeds for row in rows], dtype=float)
    widths = np.array(problem.widths, dtype=float)
    return Table(speeds, gpus, weights, counts, widths, left, age, alone, due, places, problem)


class Objective:
    name: ClassVar[str]
    merges: ClassVar[bool]

    def shares(self, table: Table) -> Array:
        raise NotImplementedError


class Las(Objective):
    """Least attained service: the smallest of all speeds is largest, each relative to an equal split."""

    name, merges = "las", True

    def shares(self, table: Table) -> Array:
        gain = las_gain(table)
        return strategy_proof(table, gain) if table.problem.is_strategy_proof else table.level(gain)


def strategy_proof(table: Table, gain: Array) -> Array:
    """The largest product of all speeds; then each job keeps only the part by which it leaves the others' speeds as
    they would be without it. A job that lies about its speeds gains nothing."""
    found = nash(table, gain, table.counts)
    speeds = np.maximum((gain * found).sum(1), 1e-12)
    kept = np.ones(len(gain))
    for row in range(len(gain)):
        others = table.counts - (np.arange(len(gain)) == row)
        there = others > 0
        if there.any():
            without = np.maximum((gain * nash(table, gain, others)).sum(1), 1e-12)
            kept[row] = float(np.exp((others[there] * np.log(speeds[there] / without[there])).sum()))
    return np.asarray(found * np.minimum(kept, 1.0)[:, None])


def nash(table: Table, gain: Array, counts: Array) -> Array:
    """Shares with the largest product of gains; none for rows without jobs."""
    there, found = counts > 0, np.zeros_like(gain)
    rows = int(there.sum())
    program = Program(gain[there], table.gpus[there], counts[there], table.widths, np.zeros(rows), np.zeros(rows))
    found[there] = centre(program._replace(is_nash=True)).shares
    return found


def las_gain(table: Table) -> Array:
    return np.asarray(table.speeds * (table.gpus / table.weights / table.equal_split())[:, None])


class Makespan(Objective):
    """All jobs end as early as possible: the smallest part of its work that a job does in a second is largest."""

    name, merges = "makespan", False

    def shares(self, table: Table) -> Array:
        left = np.maximum(table.left, 1e-3)
        return table.level(table.speeds * (left.max() / left)[:, None])


class Ftf(Objective):
    """Finish-time fairness (Themis): the worst ratio of the expected time to the end and that on an equal part of the
    cluster is smallest."""

    name, merges = "ftf", False

    def shares(self, table: Table) -> Array:
        """With r the ratio, a job needs `gain · x >= 1 / (r - late)`."""
        left = np.maximum(table.left, 1e-3)
        alone = table.alone + left / table.isolated()
        gain, nothing = table.speeds * (alone / left)[:, None], np.zeros(len(left))
        return table.solved(table.program(gain, nothing, nothing)._replace(late=table.age / alone)).shares


class Throughput(Objective):
    """The sum of all speeds is largest, each relative to the job's fastest type."""

    name, merges = "throughput", True

    def shares(self, table: Table) -> Array:
        return table.best(table.speeds / table.speeds.max(1, keepdims=True))


class Cost(Objective):
    """The most progress for the money."""

    name, merges = "cost", True

    def shares(self, table: Table) -> Array:
        return table.best(table.speeds / table.speeds.max(1, keepdims=True) / np.array(table.problem.costs))


class CostSlo(Objective):
    """The same, and jobs with a deadline meet it; if that is not possible for all, deadlines do not count."""

    name, merges = "cost-slo", False

    def shares(self, table: Table) -> Array:
        reward = table.speeds / table.speeds.max(1, keepdims=True) / np.array(table.problem.costs)
        with_due = table.due > 0
        need = np.where(with_due, table.left / np.where(with_due, table.due, 1.0), 0.0)
        if not with_due.any():
            return table.best(reward)
        most = table.solved(table.program(table.speeds, np.where(with_due, 0.0, -1.0), need))
        if most.t <= 1 + 1e-6:
            return table.best(reward)
        return table.best(reward, np.where(with_due, need, -1.0), most.shares * (1 + most.t) / (2 * most.t))


class EarliestFirst(Objective):
    """Jobs that were submitted earlier count more, each by its speed relative to its fastest type."""

    name, merges = "fifo", False

    def shares(self, table: Table) -> Array:
        rank = len(table.places) - table.places
        return table.best(table.speeds / table.speeds.max(1, keepdims=True) * rank[:, None])


class Sjf(Objective):
    """Jobs that end sooner count more."""

    name, merges = "sjf", False

    def shares(self, table: Table) -> Array:
        fastest = table.speeds.max(1, keepdims=True)
        soon = fastest / np.maximum(table.left, 1.0)[:, None]
        return table.best(table.speeds / fastest * soon)
