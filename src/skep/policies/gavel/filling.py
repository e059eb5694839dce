"""Water filling: the smallest level of all jobs is raised as far as possible, then that of those that can still gain,
and so on: the result is best for the worst, then for the second worst (lexicographic max-min). Entities, the virtual
clusters, have weights and divide theirs among their jobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skep.core.solving import Unsolved
from skep.policies.gavel.centre import Array
from skep.policies.gavel.objectives import Objective, Table, las_gain

PRICED = 1e-9
"""A need with a price above this cannot be met any better: it is a bottleneck."""


class Hierarchical(Objective):
    """Every entity has its part of the cluster by weight, divided among its jobs fairly or in the order of submission;
    levels are speeds relative to an equal split."""

    name, merges = "hierarchical", True

    def shares(self, table: Table) -> Array:
        return fill(table, las_gain(table), lambda open_rows: entity_weights(table, open_rows))


def entity_weights(table: Table, open_rows: Array) -> Array:
    """How fast the level of each row rises: the weight of its entity, divided among those that still gain."""
    problem = table.problem
    found = np.zeros(len(problem.rows))
    for entity, weight in problem.entities.items():
        mine = np.array([row.entity == entity for row in problem.rows]) & (open_rows > 0)
        if not mine.any():
            continue
        if problem.inside == "fifo":
            found[np.flatnonzero(mine)[np.argmin(table.places[mine])]] = weight
        else:
            found[mine] = weight / float((mine * table.counts).sum())
    return found


def fill(table: Table, gain: Array, weights_of: Callable[[Array], Array]) -> Array:
    """Every round of it freezes at least one row: a bottleneck of its program."""
    rows = len(gain)
    open_rows, level = np.ones(rows), np.zeros(rows)
    found = np.zeros(gain.shape)
    while open_rows.any():
        weights = weights_of(open_rows)
        found, t, prices = raise_levels(table, gain, level, weights)
        level = level + weights * t
        bottlenecks = (weights > 0) & (prices > PRICED)
        if not bottlenecks.any():
            raise Unsolved("water filling found no bottleneck")
        open_rows = np.where(bottlenecks, 0.0, open_rows)
    return found


def raise_levels(table: Table, gain: Array, level: Array, weights: Array) -> tuple[Array, float, Array]:
    """Shares, by how much the levels rise, and the prices of the needs of the rows."""
    from scipy.optimize import linprog

    from skep.policies.gavel.compat import column, stack
    from skep.policies.gavel.packed import limits, speeds

    matrix, bounds = limits(table)
    needs = stack([[-speeds(table, gain), column(weights)]])
    costs = np.zeros(matrix.shape[1] + 1)
    costs[-1] = -1.0
    answer = linprog(
        costs,
        A_ub=stack([[needs], [stack([[matrix, column(np.zeros(len(bounds)))]])]]),
        b_ub=np.concatenate([-level * (1 - 1e-9), bounds]),
        method="highs",
    )
    if answer.status != 0:
        raise Unsolved(f"water filling: {answer.message}")
    return answer.x[:-1].reshape(-1, gain.shape[1]), float(answer.x[-1]), -answer.ineqlin.marginals[: len(gain)]
