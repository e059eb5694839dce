"""Several runs at the same time, each in a separate process. A run that fails does not cost the others."""

from __future__ import annotations

import functools
import gc
import signal
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

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


def attempt(label: str, run: Callable[[], Run]) -> Run | Failure:
    try:
        return run()
    except Exception as error:
        return Failure(label, error)


def run_parallel(
    tasks: Sequence[PlannedRun], processes: int, report: Callable[[int], None] | None = None
) -> list[Run | Failure]:
    results: dict[int, Run | Failure] = {}
    runs = [functools.partial(attempt, task.label, task.run) for task in tasks]
    for number, result in as_they_end(runs, processes):
        results[number] = result
        if report is not None:
            report(len(results))
    return [results[number] for number in range(len(tasks))]


Result = TypeVar("Result")
_calls: Sequence[Callable[[], object]] = ()
"""Inherited by the forked processes, so that a large trace is not sent to each."""


def as_they_end(calls: Sequence[Callable[[], Result]], processes: int) -> Generator[tuple[int, Result], None, None]:
    """The results with the numbers of their calls, each as soon as it is there. Closing it ends all processes."""
    if processes == 1:
        yield from ((number, call()) for number, call in enumerate(calls))
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    global _calls
    _calls = calls
    gc.freeze()  # a collection in a process would touch, and so copy, every page that it shares with this one
    pool = ProcessPoolExecutor(
        min(processes, len(calls)) or 1, mp_context=multiprocessing.get_context("fork"), initializer=ignore_interrupts
    )
    try:
        futures: dict[Future[Result], int] = {pool.submit(_call, number): number for number in range(len(calls))}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()  # a run may take minutes, and its result is not wanted any more
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        gc.unfreeze()
        _calls = ()


def ignore_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal; the parent ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(number: int) -> Any:  # of the type of the caller's results
    return _calls[number]()
