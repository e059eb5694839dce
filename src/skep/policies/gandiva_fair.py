"""The planner of Gandiva_fair: every user has an equal share of the GPUs of each type, as GPU time.

Time is cut into quanta. The share of a user on a type is divided among its jobs there as tickets, and a job that runs
advances its pass by GPUs / tickets for each quantum (stride scheduling). At the end of a quantum the jobs are taken in
the order of their passes: one whose GPUs are not taken yet runs, the others are suspended where they are. So a gang
that did not fit is soon first, and the jobs of a node contend for that node alone; gangs on several nodes are in the
order of each. A new job goes to the node with the fewest tickets per GPU, and jobs move to such nodes.

Users trade shares of fast types for shares of slow ones (`allocate/trading.py`); jobs follow the shares by migration.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from skep.core.cluster import Allocation, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.job import JobState, amount_of
from skep.core.memory import Memory, Of, Slot
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.core.weights import Weights
from skep.policies.allocate.trading import trade
from skep.policies.allox import can_stop, user_of
from skep.policies.gpu_masks import Masks, add, all_gpus, all_up, masks_of, overlap
from skep.policies.joint import JointPlanner
from skep.policies.order.shares import weight_of
from skep.policies.place import Relaxed
from skep.policies.place.tickets import ByTickets
from skep.policies.probe import Probes, on_types

TICKETS_MIN = 1e-3
"""For a job on a type of which its user has nothing left: it runs when no other job wants the GPUs."""


class Pass(msgspec.Struct, frozen=True):
    """The pass of a job at a time, and its growth per second since then."""

    value: float
    rate: float
    at_s: float

    def at(self, now_s: float) -> float:
        return self.value + self.rate * (now_s - self.at_s)


PASS = Slot("gandiva-fair pass", Pass)
STARTED = Slot("gandiva-fair started", float)
"""When a job last started."""
QUANTUM = Slot("gandiva-fair quantum", float, Of.ALL)
"""When the present quantum ends."""


class Desk(msgspec.Struct, eq=False):
    """What one decision knows: passes, shares and tickets."""

    passes: dict[int, float]
    shares: dict[tuple[str, str], float]
    """GPUs of a user, by user and type, after trades."""
    strides: dict[int, float]
    """The growth of a job's pass for a second that it runs."""
    load: dict[tuple[int, int], float]
    """Tickets on each GPU, by node and GPU; those of a gang are spread evenly over its GPUs."""
    held: dict[tuple[str, str], float]
    """GPUs that a user's jobs have, running or suspended, by user and type."""


class GandivaFair(JointPlanner):
    """`price`: of trades, 0 for the second price; `gap`: how much more loaded than another a node must be for a job to
    move, as a part of the average load."""

    def __init__(
        self,
        *,
        name: str,
        quantum_s: float,
        price: float,
        trades: bool,
        gap: float,
        cool_down_s: float,
        weights: Weights,
        probe_s: float = 0.0,
    ) -> None:
        self.by_tickets = ByTickets()
        super().__init__(name=name, place=Relaxed(self.by_tickets, (0.0,)))
        self.quantum_s = quantum_s
        self.price = price
        self.trades = trades
        self.gap = gap
        self.cool_down_s = cool_down_s
        self.weights = weights
        self.probes = Probes(probe_s, self.place)

    def decide(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> float:
        pending = self.probes.start(view, plan, memory, pending)
        there = [job for job in view.placed_jobs() if job.allocation is not None]
        ends_s = self._planned(plan, memory, "")
        is_over = ends_s is None or ends_s <= view.now_s
        desk = self._desk(view, plan, memory, [*pending, *there])
        self._choose(view, plan, desk, pending, there, is_over)
        if is_over:
            ends_s = view.now_s + self.quantum_s
            plan.remember(QUANTUM, "", ends_s)
            self._migrate(view, plan, memory, desk, there)
        self._book(view, plan, memory, desk, [*pending, *there])
        waits = any(job.allocation is None or job.allocation.is_suspended for job in (*pending, *there))
        return ends_s if waits and ends_s is not None else math.inf

    def _planned(self, plan: Plan, memory: Memory, key: str) -> float | None:
        """The end of the quantum, as planned or as remembered."""
        planned = [change.value for change in plan.memory if change.slot == QUANTUM.name]
        return planned[-1] if planned else QUANTUM.get(memory, key)

    # Passes and shares -----------------------------------------------------------------------------------------

    def _passes(
        self, plan: Plan, memory: Memory, now_s: float, jobs: Sequence[JobView], keys: dict[int, tuple[str, str]]
    ) -> dict[int, float]:
        """Passes count within a type. A job that is new there, or comes from another type, begins with the smallest."""
        planned = {change.key: change.value for change in plan.memory if change.slot == PASS.name}
        known = {job.seq: planned.get(job.id) or PASS.get(memory, job.id) for job in jobs}
        found = {seq: round(each.at(now_s), 9) for seq, each in known.items() if each is not None}
        least: dict[str, float] = {}
        for job in jobs:
            if job.seq in found and job.allocation is not None:
                gpu_type = keys[job.seq][1]
                least[gpu_type] = min(least.get(gpu_type, math.inf), found[job.seq])
        for job in jobs:
            if job.seq not in found or (job.allocation is None and STARTED.get(memory, job.id) is not None):
                found[job.seq] = least.get(keys[job.seq][1], 0.0)
        return found

    def _desk(self, view: View, plan: Plan, memory: Memory, jobs: Sequence[JobView]) -> Desk:
        shares = self._shares(view, jobs)
        desk = Desk({}, shares, {}, {}, {})
        keys = {job.seq: (user_of(job), type_of(view, job)) for job in jobs if job.allocation is not None}
        for job in jobs:
            if job.seq in keys:
                desk.held[keys[job.seq]] = desk.held.get(keys[job.seq], 0.0) + gpus_of(job)
        for job in jobs:
            if job.seq not in keys:
                keys[job.seq] = (user_of(job), next(iter(preferred(view, desk, job)), ""))
        desk.passes = self._passes(plan, memory, view.now_s, jobs, keys)
        counts = Counter(keys.values())
        for job in jobs:
            key = keys[job.seq]
            tickets = max(shares.get(key, 0.0) / counts[key], TICKETS_MIN)
            desk.strides[job.seq] = gpus_of(job) / tickets / self.quantum_s
            for node, mask in masks_of(job).items():
                for gpu in bits(mask):
                    desk.load[node, gpu] = desk.load.get((node, gpu), 0.0) + tickets / max(gpus_of(job), 1)
        return desk

    def _shares(self, view: View, jobs: Sequence[JobView]) -> dict[tuple[str, str], float]:
        """A part of each type for every user by its weight, then all trades."""
        users = sorted({user_of(job) for job in jobs})
        pools = view.cluster.pools
        tickets = {user_of(job): weight_of(self.weights, job) for job in jobs}
        total = math.fsum(tickets.values())
        found = {(user, pool.gpu_type): pool.total * tickets[user] / total for user in users for pool in pools}
        for one, other in itertools.combinations([pool.gpu_type for pool in pools], 2) if self.trades else ():
            speed_ups = {user: each for user in users if (each := speed_up(view, jobs, user, one, other)) is not None}
            fast, slow = trade(
                {user: found[user, one] for user in users},
                {user: found[user, other] for user in users},
                speed_ups,
                self.price,
            )
            for user in users:
                found[user, one], found[user, other] = fast[user], slow[user]
        return found

    def _book(self, view: View, plan: Plan, memory: Memory, desk: Desk, jobs: Sequence[JobView]) -> None:
        """Remember the passes of jobs that now run, or no longer do."""
        planned = {change.key: change.value for change in plan.memory if change.slot == PASS.name}
        for job in jobs:
            runs = job.allocation is not None and not job.allocation.is_suspended
            rate = desk.strides[job.seq] if runs else 0.0
            before = planned.get(job.id) or PASS.get(memory, job.id)
            if before is None or before.rate != rate:
                plan.remember(PASS, job.id, Pass(desk.passes[job.seq], rate, view.now_s))

    # Who runs --------------------------------------------------------------------------------------------------

    def _choose(
        self, view: View, plan: Plan, desk: Desk, pending: Sequence[JobView], there: Sequence[JobView], is_over: bool
    ) -> None:
        """Within a quantum only what is free is given out. A pending job that finds no place after all is left out,
        and the choice is made anew."""
        order = sorted((*pending, *there), key=lambda job: (job.rank, desk.passes[job.seq], job.seq))
        self.by_tickets.load = {
            node.index: sum(desk.load.get((node.index, gpu), 0.0) for gpu in range(node.gpu_count)) / node.gpu_count
            for node in view.cluster.nodes
            if node.gpu_count
        }
        left_out: set[int] = set()
        while True:
            mark = plan.mark()
            misfit = self._try(view, plan, desk, [job for job in order if job.seq not in left_out], is_over)
            if misfit is None:
                return
            plan.rollback(mark)
            left_out.add(misfit.seq)

    def _try(self, view: View, plan: Plan, desk: Desk, order: Sequence[JobView], is_over: bool) -> JobView | None:
        """Suspend, resume and start. Returns a job that was to run and does not fit."""
        taken: Masks = {}
        stays = {job.seq for job in order if job.allocation is not None and not may_pause(job, is_over)}
        for job in order:
            if job.seq in stays:
                add(taken, masks_of(job))
        starting: list[tuple[JobView, Masks]] = []
        resuming, pausing = [], []
        for job in order:
            if job.seq in stays:
                continue
            masks = masks_of(job) if job.allocation is not None else self._room(view, desk, job, taken)
            if masks is None or overlap(taken, masks) or not all_up(view, masks):
                if job.state is JobState.RUNNING:
                    pausing.append(job)
                continue
            add(taken, masks)
            if job.allocation is None:
                starting.append((job, masks))
            elif job.allocation.is_suspended:
                resuming.append(job)
        for job in pausing:
            plan.suspend(job)
        for job in resuming:
            try:
                plan.resume(job)
            except InvariantBroken:  # others have the CPUs that it had
                return job
        for job, masks in starting:
            if not self._start(view, plan, desk, job, masks):
                return job
        return None

    def _room(self, view: View, desk: Desk, job: JobView, taken: Masks) -> Masks | None:
        """GPUs for a pending job beside those that are taken: of one node if possible."""
        count = gpus_of(job)
        if not count:
            return {}
        for gpu_type in preferred(view, desk, job):
            pools = view.cluster.pools_for((gpu_type,))
            nodes = [node for pool in pools for node in pool.nodes if node.is_up]
            free = {node.index: all_gpus(node) & ~taken.get(node.index, 0) for node in nodes}
            fitting = [node for node in nodes if free[node.index].bit_count() >= count]
            if fitting:
                load = self.by_tickets.load
                node = min(fitting, key=lambda node: (load.get(node.index, 0.0), node.index))
                return {node.index: least_loaded(desk, node.index, free[node.index], count)[1]}
            if sum(mask.bit_count() for mask in free.values()) >= count:
                return spread(desk, free, count)
        return None

    def _start(self, view: View, plan: Plan, desk: Desk, job: JobView, masks: Masks) -> bool:
        """On the chosen GPUs of one node, on the type of which its user has most left, or else as the job asks for."""
        found = exactly(view, plan, job, masks)
        types = preferred(view, desk, job)
        shapes = [on_types(shape, (each,)) for each in types for shape in job.shapes if shape.gpus]
        for shape in (*shapes, *job.shapes):
            found = found or self.place.find(view.cluster, plan, job, shape, view.now_s)
        if found is None:
            return False
        plan.start(job, found)
        plan.remember(STARTED, job.id, view.now_s)
        return True

    # Migration -------------------------------------------------------------------------------------------------

    def _migrate(self, view: View, plan: Plan, memory: Memory, desk: Desk, there: Sequence[JobView]) -> None:
        """Stop one job that has a better place: it starts there with the next decision. A suspended one rather."""
        movable = [
            job
            for job in there
            if can_stop(job)
            and job.allocation is not None
            and job.state is not JobState.LAUNCHING
            and view.now_s - (STARTED.get(memory, job.id) or 0.0) >= self.cool_down_s
        ]
        movable.sort(key=lambda job: (not is_suspended(job), desk.passes[job.seq], job.seq))
        for job in movable:
            if self._is_better_elsewhere(view, plan, desk, job):
                plan.stop(job, "migration")
                return

    def _is_better_elsewhere(self, view: View, plan: Plan, desk: Desk, job: JobView) -> bool:
        """On another type of which its user has more left, on a node with less load, or on GPUs that are idle."""
        here, user, count = type_of(view, job), user_of(job), gpus_of(job)
        if is_suspended(job) and any(
            self.place.find(view.cluster, plan, job, shape, view.now_s) is not None for shape in job.shapes
        ):
            return True
        first = next(iter(preferred(view, desk, job)), here)
        if first != here and pressure(desk, user, here, 0) > (1 + self.gap) * pressure(desk, user, first, count):
            return True
        nodes = list(masks_of(job))
        if len(nodes) != 1:
            return False
        [(node, mask)] = masks_of(job).items()
        pool = view.cluster.nodes[node].pool
        own = 1 / max(desk.strides[job.seq] * self.quantum_s, 1e-9)
        mine = max(desk.load.get((node, gpu), 0.0) for gpu in bits(mask))
        others = [
            least_loaded(desk, each.index, all_gpus(each) & ~(mask if each.index == node else 0), count)[0]
            for each in pool.nodes
            if each.is_up and each.gpu_count - (count if each.index == node else 0) >= count
        ]
        tickets = math.fsum(load for (at, _), load in desk.load.items() if view.cluster.nodes[at].pool is pool)
        return bool(others) and mine - min(others) - own > self.gap * tickets / max(pool.total, 1) + 1e-9


def preferred(view: View, desk: Desk, job: JobView) -> list[str]:
    """The types that the job may use: first the one of which its user has most for each of its GPUs."""
    user, types = user_of(job), dict[str, None]()
    here = type_of(view, job)
    for shape in job.shapes:
        types.update(dict.fromkeys(pool.gpu_type for pool in view.cluster.pools_for(shape.gpu_types)))
    return sorted(types, key=lambda each: pressure(desk, user, each, 0 if each == here else gpus_of(job)))


def pressure(desk: Desk, user: str, gpu_type: str, more: int) -> float:
    """GPUs that a user's jobs ask for on a type, with so many more, for each that is its own."""
    return (desk.held.get((user, gpu_type), 0.0) + more) / max(desk.shares.get((user, gpu_type), 0.0), TICKETS_MIN)


def speed_up(view: View, jobs: Sequence[JobView], user: str, fast: str, slow: str) -> float | None:
    """The mean ratio of the speeds of a user's jobs on two types; None if it is not known for some job, or one cannot
    use both."""
    ratios = []
    for job in jobs:
        if user_of(job) == user and gpus_of(job):
            allowed = [shape for shape in job.shapes if not shape.gpu_types or {fast, slow} <= set(shape.gpu_types)]
            rates = [view.knowledge.rate(job.spec, allowed[0], each) for each in (fast, slow)] if allowed else [None]
            if any(not rate for rate in rates):
                return None
            ratios.append(float(rates[0] or 0) / float(rates[1] or 1))
    return math.fsum(ratios) / len(ratios) if ratios else None


def exactly(view: View, plan: Plan, job: JobView, masks: Masks) -> Allocation | None:
    """These GPUs of one node, if the job asks for GPUs only and they are free."""
    if len(masks) != 1 or not job.shapes[0].is_plain:
        return None
    [(node, mask)] = masks.items()
    found = Allocation((Slice(node, mask, tasks=mask.bit_count()),), mask.bit_count())
    is_free = view.cluster.nodes[node].free_mask & mask == mask
    return found if is_free and plan.allows(found) else None


def gpus_of(job: JobView) -> int:
    return math.ceil(amount_of(job.shapes[0]))


def type_of(view: View, job: JobView) -> str:
    nodes = list(masks_of(job))
    return view.cluster.nodes[nodes[0]].pool.gpu_type if nodes else ""


def is_suspended(job: JobView) -> bool:
    return job.allocation is not None and job.allocation.is_suspended


def may_pause(job: JobView, is_over: bool) -> bool:
    """True if the job does not simply go on: it is suspended, or its quantum is over."""
    if is_suspended(job):
        return True
    return is_over and job.state is JobState.RUNNING and job.spec.preemptible and not job.is_ending and gpus_of(job) > 0


def least_loaded(desk: Desk, node: int, mask: int, count: int) -> tuple[float, int]:
    """Of these GPUs of a node those with the fewest tickets, and the most tickets that one of them has."""
    order = sorted(bits(mask), key=lambda gpu: (desk.load.get((node, gpu), 0.0), gpu))[:count]
    most = max((desk.load.get((node, gpu), 0.0) for gpu in order), default=0.0)
    return most, sum(1 << gpu for gpu in order)


def spread(desk: Desk, free: Masks, count: int) -> Masks:
    """GPUs of several nodes, those with the most first."""
    found: Masks = {}
    for node, mask in sorted(free.items(), key=lambda each: (-each[1].bit_count(), each[0])):
        some = min(mask.bit_count(), count)
        if some:
            found[node] = least_loaded(desk, node, mask, some)[1]
            count -= some
    return found
