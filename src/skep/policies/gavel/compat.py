"""The programs of Gavel's release, solved the way it solves them: by a conic interior-point method on raw steps/s.

Which of many optima is taken decides the times of jobs. Gavel's answers are those of ECOS, which stops on its way
to the middle of the optima; Clarabel, a solver of the same kind, stops near it if the programs and their units are the
same. For finish-time fairness without knowledge of the types it does not, and `centre` comes nearer.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from skep.core.solving import Unsolved
from skep.policies.gavel.centre import Array
from skep.policies.gavel.objectives import Ftf, Las, Makespan, Objective, Table, las_gain

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix as Sparse

SHORTEST_S, LONGEST_S = 100.0, 1e6
"""Where the search for a makespan begins; ten times as far if no answer is found."""
NEAR = 1.05
"""The search ends when its limits are this near."""
LONGEST_MAX_S = 1e13


class CompatLas(Las):
    merges = False

    def shares(self, table: Table) -> Array:
        gain = las_gain(table)
        rows, types = gain.shape
        cells = rows * types
        costs = np.zeros(cells + 1)
        costs[-1] = -1.0
        limits, bounds = limits_of(table, 1)
        needs = stack([[-by_row(gain), column(np.ones(rows))]])
        found = conic(costs, stack([[needs], [limits]]), np.concatenate([np.zeros(rows), bounds]))
        return required(found)[:cells].reshape(rows, types)


class CompatMakespan(Makespan):
    def shares(self, table: Table) -> Array:
        """The last answer of a search by halves for the smallest makespan that has one."""
        scale = scales(table)
        gain, left = table.speeds * scale[:, None], table.left * scale
        limits, bounds = limits_of(table, 0)
        matrix = stack([[limits], [-by_row(gain)]])
        longest = LONGEST_S
        low_s, high_s = SHORTEST_S, longest
        found = None
        while found is None and longest < LONGEST_MAX_S:
            while NEAR * low_s < high_s:
                middle_s = (low_s + high_s) / 2
                answer = conic(np.zeros(gain.size), matrix, np.concatenate([bounds, -left / middle_s]))
                if answer is None:
                    low_s = middle_s
                else:
                    found, high_s = answer, middle_s
            low_s, high_s, longest = longest, 10 * longest, 10 * longest
        return required(found).reshape(gain.shape)


class CompatFtf(Ftf):
    def shares(self, table: Table) -> Array:
        """Beside the shares and the worst ratio, a time per step for each job: `time * speed >= 1` is a cone."""
        if not table.problem.is_aware:
            return super().shares(table)
        scale = scales(table)
        gain, left = table.speeds * scale[:, None], table.left * scale
        rows, types = gain.shape
        cells = rows * types
        alone = table.alone + left / (table.isolated() * scale)
        limits, bounds = limits_of(table, 1 + rows)
        ratios = stack([[nothing(rows, cells), column(-np.ones(rows)), diagonal(left / alone)]])
        linear = stack([[ratios], [limits]])
        speed = stack([[-by_row(gain), column(np.zeros(rows)), nothing(rows, rows)]])
        per_step = stack([[nothing(rows, cells + 1), diagonal(np.ones(rows))]])
        cones = stack([[speed - per_step], [speed + per_step], [nothing(rows, cells + 1 + rows)]]).tocsr()
        order = np.arange(3 * rows).reshape(3, rows).T.ravel()
        costs = np.zeros(cells + 1 + rows)
        costs[cells] = 1.0
        right = np.concatenate([-table.age / alone, bounds, np.tile([0.0, 0.0, 2.0], rows)])
        found = conic(costs, stack([[linear], [cones[order]]]), right, rows)
        return required(found)[:cells].reshape(rows, types)


COMPAT: dict[str, type[Objective]] = {each.name: each for each in (CompatLas, CompatMakespan, CompatFtf)}


def scales(table: Table) -> Array:
    return np.array([row.scale for row in table.problem.rows])


def required(found: Array | None) -> Array:
    if found is None:
        raise Unsolved("the solver found no answer")
    return found


def conic(costs: Array, matrix: Sparse, right: Array, cones: int = 0) -> Array | None:
    """The smallest costs with `right - matrix · x` not negative, and its last numbers in cones of three. None if there
    is no answer."""
    import clarabel
    from scipy import sparse

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    shapes = [clarabel.NonnegativeConeT(len(right) - 3 * cones), *itertools.repeat(clarabel.SecondOrderConeT(3), cones)]
    size = len(costs)
    problem = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)), costs, sparse.csc_matrix(matrix), right, shapes, settings
    )
    answer = problem.solve()
    return np.array(answer.x) if answer.status == clarabel.SolverStatus.Solved else None


def limits_of(table: Table, others: int) -> tuple[Sparse, Array]:
    """Shares are not negative, types have so many GPUs, and a job has all of the time at most; beside `others`
    variables."""
    from scipy import sparse

    rows, types = table.speeds.shape
    cells = np.arange(rows * types)
    by_type = sparse.csr_matrix((np.repeat(table.gpus, types), (cells % types, cells)), shape=(types, rows * types))
    matrix = stack([[-sparse.eye(rows * types)], [by_type], [by_row(np.ones((rows, types)))]])
    bounds = np.concatenate([np.zeros(rows * types), table.widths, np.ones(rows)])
    return (stack([[matrix, nothing(len(bounds), others)]]) if others else matrix), bounds


def by_row(values: Array) -> Sparse:
    """A matrix that sums the shares of each row with these factors."""
    from scipy import sparse

    rows, types = values.shape
    cells = np.arange(rows * types)
    return sparse.csr_matrix((values.ravel(), (cells // types, cells)), shape=(rows, rows * types))


def stack(blocks: list[list[Sparse]]) -> Sparse:
    from scipy import sparse

    return sparse.bmat(blocks)


def column(values: Array) -> Sparse:
    from scipy import sparse

    return sparse.csr_matrix(values[:, None])


def diagonal(values: Array) -> Sparse:
    from scipy import sparse

    return sparse.diags(values)


def nothing(rows: int, columns: int) -> Sparse:
    from scipy import sparse

    return sparse.csr_matrix((rows, columns))
