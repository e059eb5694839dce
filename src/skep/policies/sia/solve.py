"""The solver of Sia: configurations, the goodput of each job in each, the choice, and places.

A configuration is a number of GPUs on nodes of one kind (GPU type and size): within a node 1, 2, 4 .. tasks, or whole
nodes. The value of a configuration is its goodput, 1 for the smallest value of the job, times the GPUs of its smallest
configuration; a configuration other than the present one counts less, because a restart costs time. The sum of

    value^power for each job, `waiting` for a job without GPUs

is made small (large, if the power is above 0).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from skep.policies.estimate.by_type import fits_by_type
from skep.policies.estimate.goodput import BatchBounds, BestGoodputs, GradientNoise, best_goodputs
from skep.policies.pollux.problem import GivenPlace, GoodputAnswer
from skep.policies.sia.choice import NEVER, NONE, ConfigurationChoice, Configurations, Floats, choose
from skep.policies.sia.packing import PackedJob, Seats, TwoEnds
from skep.policies.sia.problem import SiaJob, SiaProblem

Kind = tuple[str, int]
"""A GPU type, and the GPUs of a node."""


def solve(problem: SiaProblem) -> GoodputAnswer:
    kinds = sorted({(node.gpu_type, node.size) for node in problem.nodes})
    if not kinds or not problem.jobs:
        return GoodputAnswer({job.seq: GivenPlace({}) for job in problem.jobs})
    table = ConfigurationTable(problem, kinds)
    profits = table.profits()
    scale = problem.waiting * len(problem.jobs)
    choice = choose(profits, table.columns, scale)
    seats = table.packed(choice)
    jobs = {}
    for number, job in enumerate(problem.jobs):
        mine = seats.get(number, {})
        at = {problem.nodes[place].index: tasks for place, tasks in mine.items()}
        jobs[job.seq] = GivenPlace(at, table.batch(number, mine) if at else 0)
    return GoodputAnswer(jobs, scale - choice.profit, scale - choice.bound)


def tasks_within(whole: int, nodes: int, least: int, most: int) -> list[int]:
    """The numbers of tasks that are configurations, where a node takes `whole` of them. A job of one size has only
    that."""
    if not whole:
        return []
    powers = [2**exponent for exponent in range(whole.bit_length())]
    several = [whole * count for count in range(1, nodes + 1)]
    return sorted(tasks for tasks in {*powers, *several, least} if least <= tasks <= min(most, whole * nodes))


class ConfigurationTable:
    """Rows are jobs, columns are configurations: a kind of node and a number of GPUs."""

    def __init__(self, problem: SiaProblem, kinds: list[Kind]) -> None:
        self.problem, self.kinds = problem, kinds
        self.kind_of = [kinds.index((node.gpu_type, node.size)) for node in problem.nodes]
        room = np.bincount(self.kind_of, weights=[node.gpus for node in problem.nodes], minlength=len(kinds))
        self.nodes = np.bincount(self.kind_of, minlength=len(kinds))
        self.tasks = functools.cache(self._tasks)
        found = {
            (kind, tasks * job.task_gpus)
            for job in problem.jobs
            for kind in range(len(kinds))
            for tasks in self.tasks(kind, job.task_gpus, job.least, job.most)
        }
        self.column = {each: number for number, each in enumerate(sorted(found))}
        pairs = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
        self.columns = Configurations(pairs[:, 0], pairs[:, 1], room.astype(np.int64))
        self.best = [goodputs_of(job) for job in problem.jobs]

    def _tasks(self, kind: int, task_gpus: int, least: int, most: int) -> list[int]:
        return tasks_within(self.kinds[kind][1] // task_gpus, int(self.nodes[kind]), least, most)

    def profits(self) -> Floats:
        """By job and configuration: what it brings against giving the job nothing."""
        problem = self.problem
        found = np.full((len(problem.jobs), len(self.column)), NEVER)
        for row, job in enumerate(problem.jobs):
            columns, goodputs = self._goodputs(row, job)
            if not columns:
                continue
            values = np.array(goodputs)
            values *= self.columns.gpus[columns].min() / values.min()
            values *= np.where(np.array(columns) == self.present(job), 1.0, job.kept if job.now else 1.0)
            with np.errstate(divide="ignore"):
                costs = values**problem.power
            found[row, columns] = problem.waiting - costs if problem.power < 0 else problem.waiting + costs
        return found

    def _goodputs(self, row: int, job: SiaJob) -> tuple[list[int], list[float]]:
        """The configurations that it can have, and the goodput in each."""
        columns, goodputs = [], []
        for kind, (gpu_type, size) in enumerate(self.kinds):
            if gpu_type not in job.rates:
                continue
            best = self.best[row].get(gpu_type)
            for tasks in self.tasks(kind, job.task_gpus, job.least, job.most):
                gpus = tasks * job.task_gpus
                is_spread = int(tasks > size // job.task_gpus)
                goodput = job.rates[gpu_type] * gpus if best is None else float(best.goodput[is_spread, gpus - 1])
                if goodput > 0:
                    columns.append(self.column[kind, gpus])
                    goodputs.append(goodput)
        return columns, goodputs

    def present(self, job: SiaJob) -> int:
        """The configuration that it has; `NONE`: it does not run, or in none."""
        if not job.now:
            return NONE
        kind = self.kind_of[next(iter(job.now))]
        tasks = sum(job.now.values())
        whole = max(self.kinds[kind][1] // job.task_gpus, 1)
        is_dense = len(job.now) == -(-tasks // whole)
        return self.column.get((kind, tasks * job.task_gpus), NONE) if is_dense else NONE

    def packed(self, choice: ConfigurationChoice) -> dict[int, Seats]:
        jobs = []
        for number, (job, column) in enumerate(zip(self.problem.jobs, choice.columns.tolist(), strict=True)):
            if column != NONE:
                tasks = int(self.columns.gpus[column]) // job.task_gpus
                now = job.now if self.present(job) == column else {}
                kind = int(self.columns.kinds[column])
                jobs.append(PackedJob(number, job.task_gpus, tasks, job.least, kind, now))
        return TwoEnds(self.problem.nodes, self.kind_of).pack(jobs)

    def batch(self, row: int, seats: Seats) -> int:
        """0: its own."""
        job, kind = self.problem.jobs[row], self.kind_of[next(iter(seats))]
        best = self.best[row].get(self.kinds[kind][0])
        gpus = sum(seats.values()) * job.task_gpus
        return 0 if best is None else int(best.batch[int(len(seats) > 1), gpus - 1])


def goodputs_of(job: SiaJob) -> Mapping[str, BestGoodputs]:
    """By GPU type; empty: it has shown nothing. Gradient noise is the same on all types; none before it is shown."""
    shown = job.shown.types
    if job.batches is None or not any(each.steps for each in shown.values()):
        return {}
    noisy = max(shown.values(), key=lambda each: each.var + each.sqr)
    noise = GradientNoise(noisy.sqr, noisy.var) if noisy.sqr + noisy.var else GradientNoise(1.0, 0.0)
    fits = fits_by_type(tuple(sorted((name, each.steps) for name, each in shown.items() if each.steps)))
    gpus = job.most * job.task_gpus
    return {
        name: best_goodputs(fit, noise, BatchBounds(*job.batches, *shown[name].samples), gpus)
        for name, fit in fits.items()
    }
