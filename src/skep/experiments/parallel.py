"""Several runs at the same time, each in a separate process. A run that fails does not cost the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.experiments.simulate import Experiment
from skep.metrics.run import Run

if TYPE_CHECKING:
    from concurrent.futures import Future


class PlannedRun(msgspec.Struct, frozen=True):
    """One policy in one experiment; `label` names it among the others."""

    experiment: Experiment
    policy: str
    label: str

    def run(self) -> Run:
        return self.experiment.run(self.policy)


class Failure(msgspec.Struct, frozen=True):
    """A run that raised."""

    label: str
    error: Exception


def tasks_of(experiments: Sequence[Experiment], policies: Sequence[str]) -> list[PlannedRun]:
    """Every policy on every cluster with every seed. A label has what is not the same for all."""
    clusters = {each.cluster.name for each in experiments}
    seeds = {each.options.seed for each in experiments}
    tasks = []
    for each in experiments:
        where = f" on {each.cluster.name}" if len(clusters) > 1 else ""
        seed = f" seed={each.options.seed}" if len(seeds) > 1 else ""
        tasks += [PlannedRun(each, policy, f"{policy}{where}{seed}") for policy in policies]
    return tasks


_tasks: Sequence[PlannedRun] = ()
"""Inherited by the forked processes, so that a large trace is not sent to each."""


def attempt(label: str, run: Callable[[], Run]) -> Run | Failure:
    try:
        return run()
    except Exception as error:
        return Failure(label, error)


def run_parallel(
    tasks: Sequence[PlannedRun], processes: int, report: Callable[[int], None] | None = None
) -> list[Run | Failure]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    global _tasks
    _tasks = tasks
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context) as pool:
            futures: list[Future[Run]] = [pool.submit(_run, number) for number in range(len(tasks))]
            for done, _ in enumerate(as_completed(futures), start=1):
                if report is not None:
                    report(done)
            return [attempt(task.label, future.result) for task, future in zip(tasks, futures, strict=True)]
    finally:
        _tasks = ()


def _run(number: int) -> Run:
    return _tasks[number].run()
