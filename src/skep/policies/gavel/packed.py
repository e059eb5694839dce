"""Time shares where two jobs may run on the same GPUs at once (Gavel's space sharing).

Beside the shares of the rows the program has those of pairs: how much of the time two jobs of these rows are together
on a type. In a pair each has a part of its speed there. What an objective says of a speed thus holds for both, so
all objectives take pairs without a change.

The answer is that of an interior-point method, which ends in the middle of the optima.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skep.policies.gavel.centre import Array, Centre, Program
from skep.policies.gavel.compat import by_row, column, conic, required, stack
from skep.policies.gavel.objectives import USELESS, Table

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix as Sparse


MOVES = 20
PRECISION = 1e-7


def packed(program: Program, table: Table) -> Centre:
    """Rows × types and then pairs × types: seconds of one second in which some pair of these rows is there.

    With `late`, what a row needs is concave in `t`, so tangents demand too much and never too little: a few programs
    with tangents at the last answer lead to the optimum."""
    if program.late is None:
        return _packed(program, table)
    behind, found = program.late.max() - program.late, Centre(np.zeros_like(program.gain), 0.0)
    for _ in range(MOVES):
        t = found.t
        part = 1 / (1 + behind * t)
        found = _packed(program._replace(base=(part - part * part) * t, slope=part * part), table)
        if abs(found.t - t) <= PRECISION * found.t:
            break
    return found


def _packed(program: Program, table: Table) -> Centre:
    gain, slope = program.gain, program.slope
    rows, types = gain.shape
    matrix, bounds = limits(table)
    needs = stack([[-speeds(table, gain), column(slope)]])
    reward = np.zeros(matrix.shape[1] + 1)
    reward[: rows * types] = (program.counts[:, None] * program.reward + np.zeros_like(gain)).ravel()
    reward[rows * types : -1] = pair_rewards(table, np.zeros_like(gain) + program.reward)
    reward[-1] = float(slope.any())
    cells = matrix.shape[1]
    from scipy import sparse

    limited = stack([[-sparse.eye(cells)], [matrix]])
    above = stack([[stack([[limited, column(np.zeros(limited.shape[0]))]])], [needs]])
    found = required(conic(-reward, above, np.concatenate([np.zeros(cells), bounds, -program.base])))
    return Centre(found[:-1].reshape(-1, types), float(found[-1]) if slope.any() else 0.0)


def members(table: Table) -> list[tuple[int, int, int]]:
    """Each job of each pair: (number of the pair, its row, which of the two it is)."""
    pairs = table.problem.pairs
    return [(number, row, at) for number, pair in enumerate(pairs) for at, row in enumerate((pair.one, pair.other))]


def in_pairs(table: Table, values: Array) -> Sparse:
    """A matrix that sums the shares of pairs by row, for one job of the row, with these factors: members × types."""
    from scipy import sparse

    types = len(table.widths)
    number, row, _ = np.array(members(table)).T
    cells = number[:, None] * types + np.arange(types)
    where = (np.repeat(row, types), cells.ravel())
    each = values / table.counts[row][:, None]
    return sparse.csr_matrix((each.ravel(), where), shape=(len(table.counts), len(table.problem.pairs) * types))


def parts(table: Table) -> Array:
    """The part of its speed that each member of a pair keeps on each type."""
    pairs = table.problem.pairs
    return np.array([[on_type[at] for on_type in pairs[number].parts] for number, _, at in members(table)])


def speeds(table: Table, gain: Array) -> Sparse:
    """A matrix that sums the gains of the shares, alone and in pairs, by row."""
    alone = by_row(gain)
    if not table.problem.pairs:
        return alone
    rows = [row for _, row, _ in members(table)]
    return stack([[alone, in_pairs(table, gain[rows] * parts(table))]])


def limits(table: Table) -> tuple[Sparse, Array]:
    """No job is used more than all of the time, no type more than it has GPUs."""
    from scipy import sparse

    rows, types = table.speeds.shape
    pairs = table.problem.pairs
    used = np.repeat(np.concatenate([table.counts * table.gpus, table.gpus[[pair.one for pair in pairs]]]), types)
    cells = np.arange(len(used))
    by_type = sparse.csr_matrix((used, (cells % types, cells)), shape=(types, len(used)))
    whole = by_row(np.ones((rows, types)))
    if pairs:
        whole = stack([[whole, in_pairs(table, np.ones((2 * len(pairs), types)))]])
    return stack([[whole], [by_type]]), np.concatenate([np.ones(rows), table.widths])


def pair_rewards(table: Table, reward: Array) -> Array:
    """What both jobs of each pair earn on each type; a price where they cannot be together."""
    of_members = parts(table)
    rows = [row for _, row, _ in members(table)]
    both = (reward[rows] * of_members).reshape(-1, 2, len(table.widths)).sum(1)
    return np.asarray(np.where((of_members > 0).reshape(both.shape[0], 2, -1).all(1), both, -USELESS).ravel())
