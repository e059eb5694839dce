"""Solving the question of a Gavel policy: a pure function of its value."""

from __future__ import annotations

import numpy as np

from skep.core.solving import Unsolved
from skep.policies.gavel.centre import Array
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
from skep.policies.gavel.problem import PairShare, ShareProblem, TimeShares

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
    digits = COMPAT_DIGITS if problem.is_compat else DIGITS
    rows = [tuple(row) for row in np.round(np.clip(found[: len(problem.rows)], 0.0, 1.0), digits).tolist()]
    return TimeShares(rows, problem.jobs, pair_shares(problem, found[len(problem.rows) :]))


def pair_shares(problem: ShareProblem, found: Array) -> list[PairShare]:
    """Those of pairs that are ever together, for one job of each row."""
    shares = []
    for pair, both in zip(problem.pairs, np.clip(found, 0.0, None), strict=True):
        both = np.where([all(parts) for parts in pair.parts], both, 0.0)
        each = [np.round(np.clip(both / problem.rows[row].count, 0.0, 1.0), DIGITS) for row in (pair.one, pair.other)]
        if each[0].any() and each[1].any():
            twice = 2.0 if pair.one == pair.other else 1.0
            shares.append(PairShare(pair.one, pair.other, *(tuple((twice * of).tolist()) for of in each)))
    return shares


def _objective(problem: ShareProblem) -> Objective:
    if problem.is_compat:
        from skep.policies.gavel.compat import COMPAT  # scipy and clarabel

        if problem.objective in COMPAT:
            return COMPAT[problem.objective]()
    return OBJECTIVES[problem.objective]()
