"""Time slices: jobs that find no free GPUs join jobs of the same size on theirs, and take turns (Gandiva, OSDI'18).

A plan only sets members, weights and the quantum of a share group; the engine schedules the turns. The least loaded
node goes first (the GPUs that its jobs request, in relation to those that it has), there the seat with the fewest
members; no seat has more than `height`. A member that is left alone has its GPUs to itself again.

A job does not join while a smaller one waits before it: the GPUs of the seat become free for that one when the members
have ended. Otherwise large jobs could follow each other on the same GPUs forever.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.core.cluster import WHOLE, Allocation
from skep.core.errors import InvariantBroken
from skep.core.model import Role
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.share import MODES, SLICE
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, solo_speed
from skep.policies.place.base import role_slice
from skep.policies.seats import Changed, Key, Seats, SharedSeat

SETTLE_S = 600.0
"""The effect of a slice is measured after some rounds of turns."""

OnMode = Callable[[JobView, Allocation], Allocation]
"""The seats of a job under the terms of a share mode."""


class Slices:
    """Oversubscribes the GPUs of jobs of the same size, `height` times at most."""

    name = "slices"
    needs = frozenset({Need.SHARE})

    def __init__(self, *, height: int = 2, quantum_s: float = 60.0) -> None:
        self.height = height
        self.quantum_ms = int(quantum_s * 1000)
        self.effects = Effects(self.name, cool_down_s=0.0, settle_s=SETTLE_S)

    def attach(self, view: View) -> None:
        self.effects.attach(view)
        self.changed = Changed()

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        waiting: list[JobView] = []
        """The jobs that found no seat."""

        def attempt(job: JobView) -> bool:
            if not is_held_up(job, waiting) and self._join_any(view, plan, walked.seats, job):
                return True
            waiting.append(job)
            return False

        walked.offer_pending(attempt)
        for seat in self.changed.take(walked.seats):
            if len(seat.members) == 1 and seat.mode in (SLICE, "pack"):
                give_alone(plan, seat)
        return self.effects.measure(view, plan)

    def _join_any(self, view: View, plan: Plan, seats: Seats, job: JobView) -> bool:
        role = sharing_role(job, SLICE)
        if role is None:
            return False
        for seat in seats.least_loaded(role.count * role.gpus, self.height):
            if may_host(view, seat, job) and join(view, plan, seat, job, role, self._on_turns(seat)):
                members = len(seat.members)
                gpu_type = view.cluster.nodes[seat.key[0][0]].pool.gpu_type
                alone = solo_speed(view, job, gpu_type)
                self.effects.note(view, plan, job, "join", 1 / (members + 1), members=members, speed=alone)
                for each in (*seat.members, job):
                    seats.add(each)
                return True
        return False

    def _on_turns(self, seat: SharedSeat) -> OnMode:
        return lambda job, seats: on_turns(job, seats, seat.name, self.quantum_ms)


def is_held_up(job: JobView, waiting: list[JobView]) -> bool:
    """True if one of these jobs is smaller and accepts a GPU type that this one accepts."""
    types = job.shapes[0].gpu_types
    for other in waiting:
        others = other.shapes[0].gpu_types
        if 0 < other.gpu_count < job.gpu_count and (not types or not others or set(types) & set(others)):
            return True
    return False


def join(view: View, plan: Plan, seat: SharedSeat, job: JobView, role: Role, on_mode: OnMode) -> bool:
    """Start the job on the GPUs of a seat, all members in one share mode. False, with nothing changed, if GPU memory,
    CPUs or memory do not suffice."""
    start = on_mode(job, on_gpus(view, seat.key, role))
    mark = plan.mark()
    try:
        with plan.bundle():
            for member in seat.members:
                if member.allocation is not None and member.allocation.terms.mode != start.terms.mode:
                    plan.reshare(member, on_mode(member, member.allocation))
            plan.start(job, start)
    except InvariantBroken:
        plan.rollback(mark)
        return False
    return True


def on_gpus(view: View, gpus: Key, role: Role) -> Allocation:
    """The tasks of this role on the GPUs of a seat, for themselves."""
    nodes = view.cluster.nodes
    slices = [role_slice(nodes[node], role, 0, mask.bit_count() // role.gpus, mask) for node, mask in gpus if mask]
    return Allocation(tuple(slices), role.count * role.gpus)


def sharing_role(job: JobView, mode: str) -> Role | None:
    """The role of a job that can share in this mode: whole GPUs in one role, and neither its owner nor its own share
    mode forbids it."""
    roles = job.shapes[0].roles
    share = job.spec.share
    if len(roles) != 1 or not roles[0].gpus or roles[0].gpu_milli < WHOLE or not job.spec.preemptible:
        return None
    return roles[0] if share is None or share.mode in ("", mode) else None


def may_host(view: View, seat: SharedSeat, job: JobView, mode: str = SLICE) -> bool:
    """True if this job may share in this mode with the members of the seat: GPUs of an accepted type, on as few nodes
    as possible, no member of a higher priority, and none beside which one of them makes no progress."""
    if seat.mode not in ("", mode):
        return False
    shape = job.shapes[0]
    nodes = view.cluster.nodes
    pools = {nodes[node].pool.gpu_type: nodes[node].pool for node, _ in seat.key}
    (gpu_type, pool), *others = pools.items()
    if others or (shape.gpu_types and gpu_type not in shape.gpu_types):
        return False
    if not all(nodes[node].is_up and mask.bit_count() % shape.roles[0].gpus == 0 for node, mask in seat.key):
        return False
    if len(seat.key) > 1 and seat.gpus <= pool.size_max:
        return False
    return all(
        member.rank >= job.rank
        and not member.is_ending
        and sharing_role(member, mode) is not None
        and (MODES[mode].takes_turns or view.knowledge.standstills.go_together(job.spec, member.spec, gpu_type))
        for member in seat.members
    )


def on_turns(job: JobView, seats: Allocation, group: str, quantum_ms: int) -> Allocation:
    weight = job.spec.share.weight if job.spec.share is not None else 1
    return seats.on_terms(mode=SLICE, milli=0, limit=WHOLE, group=group, weight=weight, quantum_ms=quantum_ms)


def give_alone(plan: Plan, seat: SharedSeat) -> None:
    """Give the last member of a share group its GPUs exclusively, unless it has requested parts of them only."""
    (member,) = seat.members
    is_whole = member.shapes[0].gpu_milli == WHOLE
    if is_whole and member.allocation is not None and not member.is_ending:
        plan.reshare(member, member.allocation.on_terms(milli=WHOLE))
