"""Sets of GPUs, as bits by node."""

from __future__ import annotations

from skep.core.view import JobView, NodeView, View

Masks = dict[int, int]
"""GPUs by node."""


def masks_of(job: JobView) -> Masks:
    """The GPUs that a job has, or has again when it resumes."""
    allocation = job.allocation
    if allocation is None:
        return {}
    found: Masks = {}
    for piece in (allocation.resumes_as or allocation).slices:
        if piece.gpus:
            found[piece.node] = found.get(piece.node, 0) | piece.gpus
    return found


def all_gpus(node: NodeView) -> int:
    return (1 << node.gpu_count) - 1


def all_up(view: View, masks: Masks) -> bool:
    return all(view.cluster.nodes[node].is_up for node in masks)


def overlap(taken: Masks, masks: Masks) -> bool:
    return any(taken.get(node, 0) & mask for node, mask in masks.items())


def add(taken: Masks, masks: Masks) -> None:
    for node, mask in masks.items():
        taken[node] = taken.get(node, 0) | mask
