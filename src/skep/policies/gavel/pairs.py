"""Which jobs may share GPUs in pairs (Gavel's space sharing), and how fast they then are.

A pair needs the same number of GPUs and tasks, known speeds of both beside the other, and enough GPU memory. One whose
parts add up to at most 1 on a type is of no use there: both are as fast one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from skep.core.tasks import needs
from skep.core.view import JobView, View
from skep.policies.adjust.pairs import PACK
from skep.policies.adjust.slices import sharing_role
from skep.policies.gavel.problem import PairRow

PAIRS_MAX = 2000
"""Of a problem: those that gain most."""
NOT_THERE = (0.0, 0.0)


def pair_key(job: JobView) -> object:
    """Jobs with the same key do the same beside others; None: it shares no GPU."""
    return None if sharing_role(job, PACK) is None else (job.spec.model, job.spec.shapes[0], job.shapes[0])


def pairs_of(view: View, rows: Sequence[tuple[JobView, int]]) -> list[PairRow]:
    """Of rows, each given by one of its jobs and their number."""
    kinds: dict[object, list[int]] = {}
    for number, (job, _) in enumerate(rows):
        key = pair_key(job)
        if key is not None:
            kinds.setdefault(key, []).append(number)
    found = []
    for one, other in itertools.combinations_with_replacement(kinds.values(), 2):
        parts = parts_of(view, rows[one[0]][0], rows[other[0]][0])
        if any(map(any, parts)):
            found.append((-max(map(sum, parts)), one, other, parts))
    found.sort(key=lambda each: (each[0], each[1][0], each[2][0]))
    every = (
        PairRow(a, b, parts)
        for _, one, other, parts in found
        for a, b in (pairs_in(one, rows) if one is other else itertools.product(one, other))
    )
    return list(itertools.islice(every, PAIRS_MAX))


def pairs_in(kind: Sequence[int], rows: Sequence[tuple[JobView, int]]) -> Iterator[tuple[int, int]]:
    """Pairs of jobs of one kind, also of two jobs of one row."""
    yield from ((number, number) for number in kind if rows[number][1] > 1)
    yield from itertools.combinations(kind, 2)


def parts_of(view: View, one: JobView, other: JobView) -> tuple[tuple[float, float], ...]:
    """For each type the parts of their speeds that both keep there."""
    return tuple([_parts(view, one, other, pool.gpu_type) for pool in view.cluster.pools])


def _parts(view: View, one: JobView, other: JobView, gpu_type: str) -> tuple[float, float]:
    role, theirs = one.shapes[0].roles[0], other.shapes[0].roles[0]
    types = [job.shapes[0].gpu_types for job in (one, other)]
    if (role.count, role.gpus) != (theirs.count, theirs.gpus) or any(each and gpu_type not in each for each in types):
        return NOT_THERE
    if not fits_memory(view, one, other, gpu_type):
        return NOT_THERE
    if not view.knowledge.standstills.go_together(one.spec, other.spec, gpu_type):
        return NOT_THERE
    parts = part_beside(view, one, other, gpu_type), part_beside(view, other, one, gpu_type)
    return parts if sum(parts) > 1 else NOT_THERE


def part_beside(view: View, job: JobView, other: JobView, gpu_type: str) -> float:
    """The part of its speed that a job keeps; 0 if that is not known."""
    rate, shape = view.knowledge.rate, job.shapes[0]
    alone, beside = rate(job.spec, shape, gpu_type), rate(job.spec, shape, gpu_type, [other.spec])
    return min(beside / alone, 1.0) if alone and beside else 0.0


def fits_memory(view: View, one: JobView, other: JobView, gpu_type: str) -> bool:
    """True if a node of this type has enough GPU memory for both, or it is not known how much they need."""
    needed_mib = sum(needs(job.shapes[0].roles[0])[2] for job in (one, other))
    nodes = [node for pool in view.cluster.pools if pool.gpu_type == gpu_type for node in pool.nodes]
    return not needed_mib or any(needed_mib <= node.spec.gpu_mem_mib for node in nodes)
