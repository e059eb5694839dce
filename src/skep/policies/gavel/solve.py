"""Solving the question of a Gavel policy: a pure function of its value."""

from __future__ import annotations

import numpy as np

from skep.core.solving import Unsolved
from skep.policies.gavel.filling import Hierarchical
from skep.policies.gavel.objectives import (
    Cost,
    CostSlo,
    EarliestFirst,
    Ftf,
    Las,
    Makespan,
    Objective,
    Sjf,
    Throughput,
    table_of,
)
from skep.policies.gavel.problem import ShareProblem, TimeShares

DIGITS = 6
"""Shares are rounded, so that noise of the solver decides nothing."""
COMPAT_DIGITS = 10
"""Gavel orders by the smallest of them."""

OBJECTIVES: dict[str, type[Objective]] = {
    each.name: each for each in (Las, Ftf, Makespan, EarliestFirst, Sjf, Throughput, Cost, CostSlo, Hierarchical)
}


def solve(problem: ShareProblem) -> TimeShares:
    try:
        with np.errstate(all="ignore"):
            found = _objective(problem).shares(table_of(problem))
    except np.linalg.LinAlgError as error:
        raise Unsolved(f"the solver failed: {error}") from None
    if not np.isfinite(found).all():
        raise Unsolved("the solver found no finite shares")
    rows = np.round(np.clip(found, 0.0, 1.0), COMPAT_DIGITS if problem.is_compat else DIGITS).tolist()
    return TimeShares([tuple(row) for row in rows], problem.jobs)


def _objective(problem: ShareProblem) -> Objective:
    if problem.is_compat:
        from skep.policies.gavel.compat import COMPAT  # scipy and clarabel

        if problem.objective in COMPAT:
            return COMPAT[problem.objective]()
    return OBJECTIVES[problem.objective]()
