"""The seats of running jobs: an index for adjusters. A pipeline with adjusters updates it together with its list of
running jobs, so that an adjuster examines only the relevant jobs.

A *seat* is a set of GPUs that is used by one job, or by the members of one share group.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence

from skep.core.cluster import WHOLE, Allocation
from skep.core.share import SLICE
from skep.core.view import JobView, NodeView

Key = tuple[tuple[int, int], ...]
"""The GPUs of a seat: (node, mask) of each slice that has some."""


class SharedSeat:
    """The GPUs of a seat and the jobs that run there, in the order of submission."""

    __slots__ = ("gpus", "key", "load", "members", "mode", "nodes")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.nodes = {node for node, _ in key}
        self.gpus = sum(mask.bit_count() for _, mask in key)
        self.members: list[JobView] = []
        self.mode = ""
        self.load: float | None = None
        """The requested GPUs of its nodes in relation to those that they have, as it is listed; None: not listed."""

    @property
    def name(self) -> str:
        """The name of the share group of this seat."""
        return "+".join(f"{node}.{mask:x}" for node, mask in self.key)


class Seats:
    """The seats of jobs with whole GPUs, alone or in a share mode, and the jobs on each node."""

    def __init__(self) -> None:
        self.nodes: Sequence[NodeView] = ()
        self.asked: dict[int, int] = {}
        """The GPUs that the jobs of each node have requested there together."""
        self.seats: dict[Key, SharedSeat] = {}
        self.at_node: dict[int, dict[Key, SharedSeat]] = {}
        """The seats of each node."""
        self.by_load: dict[int, dict[float, list[Key]]] = {}
        """Seats by GPUs and load, sorted; up to date but for those of `stale` nodes."""
        self.stale: set[int] = set()
        """Nodes whose seats have come, gone or changed their load."""
        self.by_size: dict[tuple[int, int], list[Key]] = {}
        """Seats by (GPUs, members), sorted."""
        self.jobs: dict[int, JobView] = {}
        """All jobs by seq."""
        self.pairs: dict[Key, SharedSeat] = {}
        """Seats on which two jobs that name their models take turns."""
        self.on_node: dict[int, dict[int, JobView]] = {}
        """Jobs of each node by seq."""
        self.spread: dict[int, JobView] = {}
        """Jobs on several nodes by seq."""
        self.elastic: dict[int, JobView] = {}
        self.spliced: dict[int, JobView] = {}
        """Gangs with several workers on a GPU, by seq."""
        self.guests: dict[int, JobView] = {}
        """Jobs that share GPUs without a guaranteed part, by seq, except for members of share groups that take
        turns."""
        self._watchers: list[dict[Key, None]] = []
        self._where: dict[int, Allocation] = {}

    def add(self, job: JobView) -> None:
        """Enter the job at its wanted place. An adjuster may call this right after its own steps."""
        self.remove(job)
        allocation = job.allocation
        if allocation is None:
            return
        self._where[job.seq] = allocation
        self.jobs[job.seq] = job
        nodes = {piece.node for piece in allocation.slices}
        for node in nodes:
            self.on_node.setdefault(node, {})[job.seq] = job
        self._ask(allocation, 1)
        if len(nodes) > 1:
            self.spread[job.seq] = job
        if job.spec.gpu_range is not None:
            self.elastic[job.seq] = job
        if allocation.depth > 1:
            self.spliced[job.seq] = job
        terms = allocation.terms
        if terms.mode == "lend" and not terms.milli:
            self.guests[job.seq] = job
        if terms.gpus and (terms.mode or terms.milli == WHOLE):
            self._sit_down(job, key_of(allocation), terms.mode)

    def remove(self, job: JobView) -> None:
        allocation = self._where.pop(job.seq, None)
        if allocation is None:
            return
        for node in {piece.node for piece in allocation.slices}:
            jobs = self.on_node[node]
            del jobs[job.seq]
            if not jobs:
                del self.on_node[node]
        self._ask(allocation, -1)
        for index in (self.jobs, self.spread, self.elastic, self.spliced, self.guests):
            index.pop(job.seq, None)
        seat = self.seats.get(key_of(allocation))
        if seat is not None and job in seat.members:
            self._leave(seat, job)

    def watch(self) -> dict[Key, None]:
        """Seats that changed since the caller last cleared this; initially all of them."""
        changed = dict.fromkeys(self.seats)
        self._watchers.append(changed)
        return changed

    def with_room(self, gpus: int, members_max: int) -> Iterator[SharedSeat]:
        """Seats of this many GPUs with fewer members, fewest members first."""
        keys = (key for count in range(1, members_max) for key in self.by_size.get((gpus, count), ()))
        return (self.seats[key] for key in keys)

    def least_loaded(self, gpus: int, members_max: int) -> Iterator[SharedSeat]:
        """The same, those of the least loaded nodes first; of a node, those with the fewest members."""
        for node in self.stale:
            for seat in self.at_node.get(node, {}).values():
                self._unweigh(seat)
                self._weigh(seat)
        self.stale.clear()
        for _, keys in sorted(self.by_load.get(gpus, {}).items()):
            for _, of_node in itertools.groupby(keys, key=lambda key: key[0][0]):
                roomy = [seat for key in of_node if len((seat := self.seats[key]).members) < members_max]
                yield from sorted(roomy, key=lambda seat: len(seat.members))

    @property
    def is_crowded(self) -> bool:
        return any(members > 1 for _, members in self.by_size)

    def crowded(self) -> list[SharedSeat]:
        """Seats with several members, most members first."""
        kinds = sorted((kind for kind in self.by_size if kind[1] > 1), key=lambda kind: (-kind[1], kind[0]))
        return [self.seats[key] for kind in kinds for key in self.by_size[kind]]

    def _sit_down(self, job: JobView, key: Key, mode: str) -> None:
        seat = self.seats.get(key)
        if seat is None:
            seat = self.seats[key] = SharedSeat(key)
            for node in seat.nodes:
                self.at_node.setdefault(node, {})[key] = seat
        else:
            self._unlist(seat)
        bisect.insort(seat.members, job, key=lambda member: member.seq)
        seat.mode = mode
        self._list(seat)

    def _leave(self, seat: SharedSeat, job: JobView) -> None:
        self._unlist(seat)
        seat.members.remove(job)
        if seat.members:
            self._list(seat)
        else:
            del self.seats[seat.key]
            for node in seat.nodes:
                del self.at_node[node][seat.key]
            self._unweigh(seat)

    def _ask(self, allocation: Allocation, sign: int) -> None:
        """The job of this allocation has come or gone: the loads of its nodes change."""
        for piece in allocation.slices:
            self.asked[piece.node] = self.asked.get(piece.node, 0) + sign * piece.gpus.bit_count()
            self.stale.add(piece.node)

    def _weigh(self, seat: SharedSeat) -> None:
        there = sum(self.nodes[node].gpu_count for node in seat.nodes)
        seat.load = sum(self.asked.get(node, 0) for node in seat.nodes) / max(there, 1)
        bisect.insort(self.by_load.setdefault(seat.gpus, {}).setdefault(seat.load, []), seat.key)

    def _unweigh(self, seat: SharedSeat) -> None:
        if seat.load is None:
            return
        keys = self.by_load[seat.gpus][seat.load]
        del keys[bisect.bisect_left(keys, seat.key)]
        if not keys:
            del self.by_load[seat.gpus][seat.load]

    def _list(self, seat: SharedSeat) -> None:
        bisect.insort(self.by_size.setdefault((seat.gpus, len(seat.members)), []), seat.key)
        if seat.mode == SLICE and len(seat.members) == 2 and all(job.spec.model for job in seat.members):
            self.pairs[seat.key] = seat
        for changed in self._watchers:
            changed[seat.key] = None

    def _unlist(self, seat: SharedSeat) -> None:
        self.pairs.pop(seat.key, None)
        kind = (seat.gpus, len(seat.members))
        keys = self.by_size[kind]
        del keys[bisect.bisect_left(keys, seat.key)]
        if not keys:
            del self.by_size[kind]


def key_of(allocation: Allocation) -> Key:
    return tuple((piece.node, piece.gpus) for piece in allocation.slices if piece.gpus)


class Changed:
    """The seats that changed since one adjuster last read them."""

    def __init__(self) -> None:
        self._seats: Seats | None = None
        self._keys: dict[Key, None] = {}

    def take(self, seats: Seats) -> list[SharedSeat]:
        """The changed seats that still exist, sorted; all seats if the index is new."""
        if seats is not self._seats:
            self._seats, self._keys = seats, seats.watch()
        found = [seats.seats[key] for key in sorted(self._keys) if key in seats.seats]
        self._keys.clear()
        return found
