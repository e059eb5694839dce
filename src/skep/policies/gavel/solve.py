"""Solving the question of a Gavel policy: a pure function of its value."""

from __future__ import annotations

import numpy as np

from skep.policies.gavel.objectives import Objective, objective_named, table_of
from skep.policies.gavel.problem import ShareProblem, Shares

DIGITS = 6
"""Shares are rounded, so that noise of the solver decides nothing."""
COMPAT_DIGITS = 10
"""Gavel orders by the smallest of them."""


def solve(problem: ShareProblem) -> Shares:
    found = _objective(problem).shares(table_of(problem))
    rows = np.round(np.clip(found, 0.0, 1.0), COMPAT_DIGITS if problem.is_compat else DIGITS).tolist()
    return Shares([tuple(row) for row in rows], problem.jobs)


def _objective(problem: ShareProblem) -> Objective:
    if problem.is_compat:
        from skep.policies.gavel.compat import COMPAT  # scipy and clarabel

        if problem.objective in COMPAT:
            return COMPAT[problem.objective]()
    return objective_named(problem.objective)
