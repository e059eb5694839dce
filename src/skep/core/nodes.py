"""Nodes that join, leave and change. Events name nodes; node numbers are internal to the core.

A node keeps its number while it exists; the number of a node that has left is unused (`GONE`) until another one joins.
A change that jobs are in the way of (a node that leaves, or gets less) waits until they have exited; nothing new is
started there in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from skep.core.cluster import GONE, Allocation, Cluster, NodeSpec, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import NodeChanged, NodeJoined, NodeLeft
from skep.core.others import Others, book_again, settle

if TYPE_CHECKING:
    from skep.core.job import Job
    from skep.core.state import State

Membership = NodeJoined | NodeLeft | NodeChanged

Uses = dict[int, list[tuple[Slice, bool]]]
"""By node number: what jobs have there, and whether it is booked. Unbooked entries belong to jobs that are still
exiting."""


class NodeHealth:
    """The condition of the nodes, by name, and their pending changes."""

    __slots__ = ("changes", "conditions", "crowded", "drained", "is_told", "lost", "others", "said_lost")

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.said_lost: set[str] = set()
        """Of the lost nodes, those of which a person said it."""
        self.drained: set[str] = set()
        """By a person."""
        self.conditions: dict[str, tuple[str, ...]] = {}
        """By node, what the engine sees that speaks against new jobs there."""
        self.changes: dict[str, NodeSpec | None] = {}
        """Pending changes of nodes (None: the node leaves); changes from earlier steps wait for jobs to exit."""
        self.others: dict[str, Others] = {}
        """What tenants outside Skep use of nodes."""
        self.crowded: set[str] = set()
        """Nodes where other tenants use more than is booked, because a job is in the way or the change is new."""
        self.is_told = False
        """True if the nodes of the cluster must be updated before the next decision."""

    def may_use(self, name: str) -> bool:
        others = self.others.get(name)
        is_short = others is not None and others.deficit > 0
        is_away = name in self.lost or name in self.drained or name in self.conditions
        return not (is_short or is_away or name in self.changes)

    def unusable(self) -> set[str]:
        short = (name for name, others in self.others.items() if others.deficit)
        return {*self.lost, *self.drained, *self.conditions, *self.changes, *short}

    def forget(self, name: str) -> None:
        """The node has left."""
        for names in (self.lost, self.said_lost, self.drained):
            names.discard(name)
        self.conditions.pop(name, None)


def differences(before: Cluster, after: Cluster) -> list[Membership]:
    """The node events that turn one cluster into another."""
    there, then = before.by_name, after.by_name
    left = [NodeLeft(name) for name in there if name not in then]
    changed = [
        NodeChanged(node.spec) for node in after.nodes if node.name in there and there[node.name].spec != node.spec
    ]
    return [*left, *changed, *(NodeJoined(node.spec) for node in after.nodes if node.name not in there)]


def uses(state: State) -> Uses:
    found: Uses = {}
    for job in state.jobs.values():
        for piece, is_booked in pieces_of(job):
            found.setdefault(piece.node, []).append((piece, is_booked))
    return found


def pieces_of(job: Job) -> Iterator[tuple[Slice, bool]]:
    if job.bound is not None:
        yield from ((piece, True) for piece in job.bound.slices)
    if job.held is not None and job.held != job.bound:
        yield from ((piece, False) for piece in job.held.slices)


def could_keep(spec: NodeSpec, pieces: list[tuple[Slice, bool]]) -> bool:
    """True if a node with this spec has enough resources for all jobs on it."""
    if any(piece.gpus >> spec.gpus for piece, _ in pieces):
        return False
    trial = Cluster([spec])
    try:
        for piece, is_booked in pieces:
            if is_booked:
                trial.take(Allocation((msgspec.structs.replace(piece, node=0),), 0))
    except InvariantBroken:
        return False
    return True


def changes_due(state: State) -> list[Membership]:
    """The pending changes that no longer have to wait for jobs."""
    used = uses(state)
    return [
        NodeLeft(name) if spec is None else NodeChanged(spec)
        for name, spec in state.health.changes.items()
        if is_free(spec, used.get(state.cluster.by_name[name].index, []))
    ]


def settle_nodes(state: State) -> bool:
    """Book what others use, and apply node changes, after the events of an instant. True if there were changes."""
    if state.health.crowded:
        settle(state, sorted(state.health.crowded))
    if not state.health.is_told:
        return False
    state.health.is_told = False
    reshape(state)
    state.wake().nodes_changed = True
    return True


def reshape(state: State) -> None:
    """Apply node changes where no job is in the way; the others stay pending."""
    used = uses(state)
    specs = list(state.cluster.specs)
    joining: list[NodeSpec] = []
    waiting: dict[str, NodeSpec | None] = {}
    for name, spec in state.health.changes.items():
        node = state.cluster.by_name.get(name)
        if node is None:
            joining += [spec] if spec is not None else []
        elif not is_free(spec, used.get(node.index, [])):
            waiting[name] = spec
        else:
            specs[node.index] = GONE if spec is None else spec
            if spec is None:
                state.health.forget(name)
    free = [number for number, spec in enumerate(specs) if spec == GONE]
    for number, spec in zip(free, joining, strict=False):
        specs[number] = spec
    specs += joining[len(free) :]
    while specs and specs[-1] == GONE:
        specs.pop()
    state.health.changes = waiting
    renew(state, specs)


def is_free(spec: NodeSpec | None, pieces: list[tuple[Slice, bool]]) -> bool:
    """True if no job is in the way of a node that leaves or changes."""
    return not pieces if spec is None else could_keep(spec, pieces)


def renew(state: State, specs: list[NodeSpec]) -> None:
    """The same jobs on these nodes, with the same node numbers."""
    state.cluster.renew(specs)
    for job in state.jobs.values():
        if job.bound is not None:
            job.allocation = job.bound
            state.cluster.take(job.bound, job.seq)
    for job in state.open_jobs.values():
        state.suit(job)
    book_again(state)
    for name in state.health.unusable():
        state.cluster.lose(state.cluster.by_name[name])
