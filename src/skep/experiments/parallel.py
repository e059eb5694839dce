"""Several policies at the same time, each in a separate process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from skep.experiments.simulate import Experiment
from skep.metrics.run import Run

_experiment: Experiment | None = None
"""Inherited by the forked processes, so that a large trace is not sent to each."""


def run_parallel(
    experiment: Experiment, policies: list[str], processes: int, report: Callable[[int], None]
) -> list[Run]:
    global _experiment
    _experiment = experiment
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(min(processes, len(policies)), mp_context=context) as pool:
            futures: list[Future[Run]] = [pool.submit(_run, policy) for policy in policies]
            for done, _ in enumerate(as_completed(futures), start=1):
                report(done)
            return [future.result() for future in futures]
    finally:
        _experiment = None


def _run(policy: str) -> Run:
    assert _experiment is not None
    return _experiment.run(policy)
