"""How fast tasks run, alone or beside others, and when each reaches its next milestone."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Literal

from skep.core.allocation import Allocation, depth_of
from skep.core.cluster import Cluster
from skep.engines.sim.task import Place, SimTask, party_of, shared_places
from skep.engines.sim.turns import Turns
from skep.profiles.sharing import Costs, Sharing
from skep.profiles.speed import Speed

Slices = Literal["rate", "exact"]
"""Whether turns of share groups are a rate, or are played one by one, which is for tests and not possible from an
adopted state."""


AGENDA_LEAST = 1000
"""From this length on the agenda is cleaned when half of it may be stale: long jobs that are preempted often would fill
it with milestones of the far future."""


class Rates:
    """The rates of all running tasks. A milestone is the end of a task's work, or the point where its rate changes."""

    def __init__(
        self, cluster: Cluster, speed: Speed | None, costs: Costs | None, slices: Slices, finish_round_s: float
    ) -> None:
        self.cluster = cluster
        self.speed = speed
        self.sharing = Sharing(speed, costs)
        self.turns = Turns(self.sharing) if slices == "exact" else None
        self.finish_round_s = finish_round_s
        self.since_s = -math.inf
        """The time of an adopted state: nothing happens before it."""
        self.agenda: list[tuple[float, int, int, SimTask]] = []
        """Milestones and suspensions: (at_s, row, run, task); those of an earlier run are stale."""
        self.agenda_max = AGENDA_LEAST
        self.tenants: dict[Place, dict[int, SimTask]] = {}
        """The tenants of each shared GPU, by (node, GPU) and row, and the members of each share group. Tenants without
        a share mode are included only if the speed model covers sharing."""
        self.all_share = speed is not None and speed.knows_sharing
        self.tick_s = 0.0 if speed is None else speed.tick_s

    def next_s(self) -> float:
        """The time of the next milestone."""
        agenda = self.agenda
        while agenda:
            at_s, _, run, task = agenda[0]
            if run == task.run:
                return at_s
            heappop(agenda)
        return math.inf

    def take(self, at_s: float) -> list[SimTask]:
        """The tasks that reach their milestone now."""
        agenda = self.agenda
        found = []
        while agenda and agenda[0][0] == at_s:
            _, _, run, task = heappop(agenda)
            if run == task.run:
                found.append(task)
        return found

    def note(self, task: SimTask, at_s: float) -> None:
        """The next milestone of the task is at this time."""
        agenda = self.agenda
        if len(agenda) > self.agenda_max:
            agenda[:] = [entry for entry in agenda if entry[2] == entry[3].run]
            heapify(agenda)
            self.agenda_max = max(2 * len(agenda), AGENDA_LEAST)
        heappush(agenda, (at_s if at_s > self.since_s else self.since_s, task.row, task.run, task))

    def set(self, task: SimTask, now_s: float) -> None:
        """Compute the rate and the time of the next milestone."""
        allocation = task.allocation
        assert allocation is not None
        task.target_s = task.work_s
        if self.speed is None and allocation.gpus == task.gpus:
            task.rate, task.shown_rate = task.unit, 1.0
        else:
            task.rate = self._measure(task, allocation)
            task.shown_rate = task.rate / task.unit
        if task.mode:
            self._share(task, now_s)
        elif task.share is not None:
            task.share = allocation.gpus / allocation.gpu_count()
        task.run += 1
        if task.mark_s < task.target_s:
            task.target_s = task.mark_s
        rate, target_s = task.rate, task.target_s
        if rate > 0 and target_s < math.inf:
            at_s = task.progress_since_s + (target_s - task.done_s) / rate
            if self.tick_s:
                at_s = on_tick(at_s, self.tick_s)
            if self.finish_round_s and target_s >= task.work_s:
                at_s = math.ceil(at_s / self.finish_round_s - 1e-9) * self.finish_round_s
            self.note(task, at_s)

    def _measure(self, task: SimTask, allocation: Allocation) -> float:
        """The rate according to the speed model, if there is one, else by the number of GPUs."""
        depth = depth_of(allocation.slices)
        rate = allocation.gpus * depth if task.is_elastic else 1.0
        if self.speed is not None:
            there = () if task.mode else self.neighbours(task).values()
            neighbours = [other.job.spec for other in there if not other.is_suspended]
            rate, until_s = self.speed.rate(task.job.spec, allocation, neighbours, task.done_s, task.batch_size)
            task.target_s = min(until_s, task.work_s)
        return rate * self.sharing.spliced(depth) if depth > 1 else rate

    def _share(self, task: SimTask, now_s: float) -> None:
        """The part of its speed that is left where it shares its GPUs; a gang is as fast as its slowest member."""
        assert task.allocation is not None
        gpu_type = self.cluster.nodes[task.allocation.terms.node].spec.gpu_type
        parts = []
        for place in task.places:
            # In an order independent of arrival, so that equal situations have equal rates to the last bit.
            there = {
                row: party_of(other, place)
                for row, other in sorted(self.tenants[place].items())
                if not other.is_suspended
            }
            parts.append(self.sharing.part_of(there[task.row], list(there.values()), gpu_type))
        alone = task.rate
        task.rate *= min(part.rate for part in parts)
        task.shown_rate = task.rate / task.unit
        task.share = sum(part.share for part in parts) / len(parts)
        if self.turns is not None and task.mode == "slice":
            (group,) = task.places
            assert isinstance(group, str)
            members = [other for _, other in sorted(self.tenants[group].items()) if not other.is_suspended]
            round_ = self.turns.seat(group, members, now_s)
            task.rate = alone if round_.members[0] is task else 0.0
            task.progress_since_s = max(task.progress_since_s, round_.begins_s)

    # Several jobs on one GPU -----------------------------------------------------------------------------------

    def join(self, task: SimTask) -> dict[int, SimTask]:
        """Enter a task on the GPUs that it shares. Returns its neighbours there."""
        assert task.allocation is not None
        task.mode = task.allocation.mode()
        if not task.mode and not self.all_share:
            return {}  # its neighbours, if any, do not affect any speed
        task.places = shared_places(task)
        for place in task.places:
            self.tenants.setdefault(place, {})[task.row] = task
        return self.neighbours(task)

    def leave(self, task: SimTask) -> dict[int, SimTask]:
        """Remove a task from the GPUs that it shares. Returns its former neighbours."""
        others = self.neighbours(task)
        for place in task.places:
            del self.tenants[place][task.row]
            if not self.tenants[place]:
                del self.tenants[place]
        task.places = ()
        return others

    def neighbours(self, task: SimTask) -> dict[int, SimTask]:
        """The other tenants of its shared GPUs, each once."""
        found: dict[int, SimTask] = {}
        for place in task.places:
            found |= self.tenants[place]
        found.pop(task.row, None)
        return found


JUST_AFTER_S = 4e-7
"""More than the tolerance with which rounds of up to 400 s compare times (`core/rounds.py`), less than results show."""


def on_tick(at_s: float, tick_s: float) -> float:
    """The nearest multiple of the tick. A time that is rounded down comes just after it: what happens at the multiple
    itself, such as the decision of a round, has not seen it."""
    rounded = round(at_s / tick_s) * tick_s
    return rounded + JUST_AFTER_S if rounded < at_s - JUST_AFTER_S else rounded
