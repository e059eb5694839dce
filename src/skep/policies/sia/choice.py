"""The program of Sia: at most one configuration for each job, within the GPUs of each kind, for the largest profit.

    largest sum of profit[job, configuration] x chosen,  sum of GPUs x chosen <= GPUs of the kind,  chosen is 0 or 1

The linear program gives prices of GPUs, a bound, and whole configurations for all but a few jobs, at most as many as
there are kinds. The few take what is worth most to them at these prices and fits. If the sum is further from the bound
than `GAP`, the integer program decides: of the configurations that can still be part of a better choice, which the
prices say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skep.core.solving import Unsolved

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GAP = 2e-4
"""The part of the cost that a choice may be above the bound without a search for a better one."""
NODES_MAX = 200
"""Nodes of the search tree of the integer program."""
NEVER = -np.inf
"""The profit of a configuration that a job cannot have."""
NONE = -1


class Configurations(NamedTuple):
    """The columns: their kind of node and their GPUs; and the GPUs of each kind."""

    kinds: Ints
    gpus: Ints
    room: Ints


class ConfigurationChoice(NamedTuple):
    columns: Ints
    """By job; `NONE`: it gets nothing."""
    profit: float
    bound: float
    """No choice has a larger profit."""


def choose(profits: Floats, columns: Configurations, scale: float = 0.0) -> ConfigurationChoice:
    """`scale`: the cost if no job gets anything; the cost of a choice is that less its profit."""
    useful = profits > 0
    if not useful.any():
        return ConfigurationChoice(np.full(len(profits), NONE), 0.0, 0.0)
    relaxed = priced(profits, useful, columns)
    bound, values = relaxed.bound, profits - relaxed.prices[columns.kinds] * columns.gpus
    chosen = improved(profits, columns, rounded(profits, values, columns, relaxed.parts))
    profit = profit_of(profits, chosen)
    if bound - profit > GAP * max(scale - bound, 1e-9):
        # A configuration that is worth less than the best one of its job by more than is missing is in no better
        # choice.
        missing = bound - profit
        best = np.maximum(values.max(axis=1, initial=0.0, where=useful), 0.0)
        core = useful & (values >= best[:, None] - missing - 1e-9)
        found = searched(profits, core, columns)
        if found is not None and profit_of(profits, found) > profit:
            chosen, profit = found, profit_of(profits, found)
    return ConfigurationChoice(chosen, profit, bound)


def profit_of(profits: Floats, chosen: Ints) -> float:
    rows = np.flatnonzero(chosen != NONE)
    return float(profits[rows, chosen[rows]].sum())


class RelaxedChoice(NamedTuple):
    """The solution of the linear program."""

    prices: Floats
    """What a GPU of each kind is worth."""
    bound: float
    """Follows from the prices, whether or not they are exact."""
    parts: Floats
    """The part of each configuration that a job has."""


def priced(profits: Floats, useful: npt.NDArray[np.bool_], columns: Configurations) -> RelaxedChoice:
    from scipy.optimize import linprog

    rows = program(profits, useful, columns)
    found = linprog(-rows.profits, A_ub=rows.matrix, b_ub=rows.most, method="highs-ipm")
    if found.x is None:
        raise Unsolved(f"the linear program: {found.message}")
    prices = np.maximum(-found.ineqlin.marginals[len(profits) :], 0.0)
    values = np.where(useful, profits - prices[columns.kinds] * columns.gpus, 0.0)
    parts = np.zeros_like(profits)
    parts[useful] = found.x
    return RelaxedChoice(prices, float(np.maximum(values.max(axis=1), 0.0).sum() + prices @ columns.room), parts)


class ProgramRows(NamedTuple):
    """The rows of both programs, jobs first. Variables are the configurations that are allowed."""

    matrix: object
    most: Floats
    profits: Floats


def program(profits: Floats, allowed: npt.NDArray[np.bool_], columns: Configurations) -> ProgramRows:
    from scipy.sparse import csr_array

    rows, picks = np.nonzero(allowed)
    jobs, count = len(profits), len(rows)
    entries = np.concatenate((np.ones(count), columns.gpus[picks]))
    places = np.concatenate((rows, jobs + columns.kinds[picks])), np.tile(np.arange(count), 2)
    matrix = csr_array((entries, places), shape=(jobs + len(columns.room), count))
    return ProgramRows(matrix, np.concatenate((np.ones(jobs), columns.room)), profits[rows, picks])


def rounded(profits: Floats, values: Floats, columns: Configurations, parts: Floats) -> Ints:
    """Jobs that have most of a configuration choose first; each takes that, or what is worth most to it and fits."""
    ordered = np.argsort(-(np.where(parts > 0.5, parts, 0.0) * 1e9 + values), axis=1, kind="stable")
    left, chosen = columns.room.copy(), np.full(len(profits), NONE)
    for job in np.argsort(-parts.max(axis=1), kind="stable"):
        for column in ordered[job]:
            if profits[job, column] > 0 and columns.gpus[column] <= left[columns.kinds[column]]:
                left[columns.kinds[column]] -= columns.gpus[column]
                chosen[job] = column
                break
    return chosen


def improved(profits: Floats, columns: Configurations, chosen: Ints) -> Ints:
    """As long as one job gains by another configuration for which there is room: the one that gains most."""
    chosen, rows = chosen.copy(), np.arange(len(profits))
    for _ in range(len(profits)):
        held = chosen != NONE
        gpus = np.where(held, columns.gpus[chosen], 0)
        used = np.bincount(columns.kinds[chosen[held]], weights=gpus[held], minlength=len(columns.room))
        left = (columns.room - used)[columns.kinds][None, :]
        mine = held[:, None] & (columns.kinds[chosen][:, None] == columns.kinds[None, :])
        fits = columns.gpus[None, :] <= left + np.where(mine, gpus[:, None], 0)
        gains = np.where(fits, profits - np.where(held, profits[rows, chosen], 0.0)[:, None], NEVER)
        job, column = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[job, column] <= 1e-12:
            break
        chosen[job] = column
    return chosen


def searched(profits: Floats, core: npt.NDArray[np.bool_], columns: Configurations) -> Ints | None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    limits = program(profits, core, columns)
    found = milp(
        -limits.profits,
        integrality=np.ones(len(limits.profits)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(limits.matrix, ub=limits.most),
        options={"mip_rel_gap": 1e-5, "node_limit": NODES_MAX},
    )
    if found.x is None:
        return None
    rows, picks = np.nonzero(core)
    taken = np.flatnonzero(found.x > 0.5)
    chosen = np.full(len(profits), NONE)
    chosen[rows[taken]] = picks[taken]
    return chosen
