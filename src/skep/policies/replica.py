"""`compat=true`: reproduces the released Tiresias simulator exactly, including its quirks.

At every event it empties the cluster and places all jobs again in its order, counting GPUs only and skipping jobs that
do not fit; running jobs that no longer fit are preempted. Its order is a list that persists from event to event, which
decides ties. It examines every job at every event: suitable for comparisons, not for large traces.
"""

from __future__ import annotations

import math

import msgspec

from skep.core.errors import InputError
from skep.core.memory import Memory, Of, Slot
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.refusal import Cause, End, Refusal, ready, remedy_of
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.named import NONE
from skep.policies.estimate.duration import Duration
from skep.policies.explain import gpus_of, names_of, why_never_fits
from skep.policies.pipeline import SKIP
from skep.policies.place.simple import Anywhere
from skep.policies.registry import Knobs


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """Jobs in the order of the previous event."""

    names: list[str]


class Queued(msgspec.Struct, frozen=True, array_like=True):
    """Jobs in their queues; for each: executed seconds and waiting since the last promotion, as of the last update."""

    queues: list[list[str]]
    counters: dict[str, list[float]]


class ReplicaWake(msgspec.Struct, frozen=True, array_like=True):
    """When the planner asked to be woken."""

    at_s: float


LIST = Slot("list", Listed, Of.ALL)
QUEUES = Slot("queues", Queued, Of.ALL)
WAKE = Slot("wake", ReplicaWake, Of.ALL)


class Replica(Declares):
    """The common part: which jobs stay, are preempted, or start. Subclasses maintain the order."""

    round_s = 0.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = Anywhere()

    def attach(self, view: View, memory: Memory) -> None:
        """The order is in the memory; nothing is derived."""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        names = [name for name in self.listed(memory) if name in view.jobs and not view.jobs[name].state.is_final]
        ahead = names[: names.index(job.id)] if job.id in names else names
        if not ahead:
            return ready(view.now_s)
        reason = f"asks for {gpus_of(job.gpu_count)}; {names_of([view.jobs[name] for name in ahead])} go first"
        changes = (End(tuple(ahead)),)
        return Refusal("behind", Cause.ORDER, reason, remedy_of(changes, view.now_s), changes)

    def listed(self, memory: Memory) -> list[str]:
        """The jobs in the order of the last event."""
        raise NotImplementedError

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        if not (trigger.submitted or trigger.ended or trigger.is_timer or trigger.nodes_changed):
            kept = WAKE.get(memory)
            plan.wake(None if kept is None else kept.at_s)  # only its own preemptions returned
            return plan
        arrived = [job for job in trigger.submitted if self._is_runnable(view, plan, job)]
        ordered = self.order(view, memory, plan, arrived, {job.id for job in trigger.ended})
        left: float = view.cluster.gpu_total
        starting = []
        for job in ordered:
            if job.gpus > left:
                if job.allocation is not None:
                    plan.stop(job, "preempted")
                continue
            left -= job.gpus
            if job.allocation is None:
                starting.append(job)
        for job in starting:
            allocation = self.place.find(view.cluster, plan, job, job.shapes[0], view.now_s)
            if allocation is not None:  # a node may be down, which the simulator does not know
                plan.start(job, allocation)
        self.finish(view, memory, plan)
        return plan

    def _is_runnable(self, view: View, plan: Plan, job: JobView) -> bool:
        if not job.shapes[0].is_plain:
            raise InputError(f"job {job.id}: compat=true knows only whole GPUs of any type", hint="leave compat out")
        never = self.why_never(view, job)
        if never:
            plan.reject(job, never)
        return not never

    def why_never(self, view: View, job: JobView) -> str:
        there = sum(pool.total for pool in view.cluster.pools_for(job.shapes[0].gpu_types))
        return "" if job.gpus <= there else why_never_fits(view.cluster, job, job.shapes[0], lambda less: False)

    def order(self, view: View, memory: Memory, plan: Plan, arrived: list[JobView], ended: set[str]) -> list[JobView]:
        raise NotImplementedError

    def finish(self, view: View, memory: Memory, plan: Plan) -> None:
        """What the simulator does after it has placed the jobs."""


class SortedReplica(Replica):
    """One list, sorted again at each event; ties keep the order of the previous event."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name)
        self.kind = kind
        self.duration = Duration()

    def listed(self, memory: Memory) -> list[str]:
        kept = LIST.get(memory)
        return kept.names if kept is not None else []

    def order(self, view: View, memory: Memory, plan: Plan, arrived: list[JobView], ended: set[str]) -> list[JobView]:
        names = [name for name in self.listed(memory) if name not in ended]
        jobs = [view.jobs[name] for name in names] + arrived
        jobs.sort(key=lambda job: self._key(job, view.now_s))
        plan.remember(LIST, "", Listed([job.id for job in jobs]))
        return jobs

    def _key(self, job: JobView, now_s: float) -> float:
        if self.kind == "smallest":
            return job.gpus
        left_s = self.duration.total_s(job) - job.work_at(now_s)
        return left_s * job.gpus if self.kind == "srsf" else left_s


class QueuesReplica(Replica):
    """Queues as lists. `gittins` sorts each of them by rank; otherwise pending jobs go behind the running ones."""

    def __init__(
        self,
        name: str,
        limits: tuple[float, ...],
        *,
        by_size: bool,
        promote: float = 0.0,
        gittins: GittinsTable | None = None,
    ) -> None:
        super().__init__(name)
        self.limits = limits
        self.by_size = by_size
        self.promote = promote
        self.gittins = gittins

    def listed(self, memory: Memory) -> list[str]:
        kept = QUEUES.get(memory)
        return [name for queue in kept.queues for name in queue] if kept is not None else []

    def order(self, view: View, memory: Memory, plan: Plan, arrived: list[JobView], ended: set[str]) -> list[JobView]:
        kept = QUEUES.get(memory) or Queued([[] for _ in range(len(self.limits) + 1)], {})
        queues = [[name for name in queue if name not in ended] for queue in kept.queues]
        counters = {name: list(values) for name, values in kept.counters.items() if name not in ended}
        for job in arrived:
            queues[0].append(job.id)
            counters[job.id] = [0.0, 0.0, view.now_s]
        # In the order of submission, as the simulator keeps its runnable jobs.
        for name in sorted(counters, key=lambda name: view.jobs[name].seq):
            self._look_at(view.jobs[name], counters[name], queues, view.now_s)
        if self.gittins is not None:
            ranks = {name: self._rank(view.jobs[name], values) for name, values in counters.items()}
            for queue in queues:
                queue.sort(key=lambda name: (-ranks[name], view.jobs[name].submit_s))
        self.queued = Queued(queues, counters)
        return [view.jobs[name] for queue in queues for name in queue]

    def _look_at(self, job: JobView, counter: list[float], queues: list[list[str]], now_s: float) -> None:
        """Demote and promote. `counter`: executed seconds and waiting since the last promotion, as of the last
        update."""
        passed_s = now_s - counter[2]
        counter[2] = now_s
        level = next(number for number, queue in enumerate(queues) if job.id in queue)
        if job.allocation is not None:
            counter[0] += passed_s
            attained = counter[0] * job.gpus if self.by_size else counter[0]
            if level < len(self.limits) and attained >= self.limits[level]:
                queues[level].remove(job.id)
                queues[level + 1].append(job.id)
            return
        if counter[0] > 0:
            counter[1] += passed_s
            if self.promote and level and counter[1] >= counter[0] * self.promote:
                queues[level].remove(job.id)
                queues[0].append(job.id)
                counter[0] = counter[1] = 0.0

    def _rank(self, job: JobView, counter: list[float]) -> float:
        assert self.gittins is not None
        return self.gittins.rank(counter[0] * job.gpus)

    def finish(self, view: View, memory: Memory, plan: Plan) -> None:
        queues, counters = self.queued.queues, self.queued.counters
        if self.gittins is None:
            for queue in queues:
                queue.sort(key=lambda name: view.jobs[name].allocation is None)
        wake_s = math.inf
        for level, queue in enumerate(queues):
            for name in queue:
                wake_s = min(wake_s, view.now_s + self._until_change(view.jobs[name], level, counters[name]))
        wake_s = max(wake_s, math.nextafter(view.now_s, math.inf))  # otherwise rounding could keep time from advancing
        plan.remember(QUEUES, "", self.queued)
        plan.remember(WAKE, "", ReplicaWake(wake_s) if wake_s < math.inf else None)
        plan.wake(wake_s if wake_s < math.inf else None)

    def _until_change(self, job: JobView, level: int, counter: list[float]) -> float:
        """Seconds to the next demotion or promotion as the simulator computes them: by integer division of seconds by
        GPUs, which is too late for a job of several GPUs that has run."""
        executed_s, waited_s, _ = counter
        if job.allocation is None:
            left_s = executed_s * self.promote - waited_s
            return left_s if self.promote and executed_s > 0 and left_s > 0 else math.inf
        if level == len(self.limits):
            return math.inf
        left_s = self.limits[level] - executed_s
        return left_s // job.gpus or 1.0 if self.by_size else left_s


class GittinsTable:
    """The rank of the released simulator: it sums raw sizes instead of remaining ones, and the values are rounded and
    computed once, one below each sample."""

    def __init__(self, samples: tuple[float, ...], quantum: float = 3250.0) -> None:
        self.samples = sorted(samples)
        self.quantum = quantum
        self.ranks = [self._rank(sample - 1) for sample in self.samples]

    def _rank(self, attained: float) -> float:
        samples = self.samples
        count = len(samples)
        if attained > samples[-1] - 1:
            return 0.0
        first = self._above(attained)
        beyond = attained + self.quantum
        last = count - 1 if beyond > samples[-1] - 1 else self._above(beyond)
        part = round((last - first) / (count - first), 5)
        served = (sum(samples[first:last]) + self.quantum * (count - last)) // (count - first)
        return round(part * 1e6 / served, 4)

    def _above(self, value: float) -> int:
        return next(number for number, sample in enumerate(self.samples) if sample > value)

    def rank(self, attained: float) -> float:
        if attained > self.samples[-2]:
            return 0.0
        return self.ranks[self._above(attained)]


def check_compat(knobs: Knobs) -> None:
    """A knob that would be ignored is an error."""
    if knobs["place"] != "any":
        raise InputError(
            f"compat=true imitates a simulator that only counts GPUs; it needs place=any, not place={knobs['place']}",
            hint="add place=any, or leave compat out",
        )
    if knobs["walk"] != SKIP or knobs["patience"] or knobs["adjust"] != NONE:
        raise InputError(
            "compat=true imitates a simulator that skips jobs which do not fit: it has no other walk, no patience "
            "and no adjusters",
            hint="leave them or compat out",
        )
