"""The one mutable thing: the cluster, the jobs, the policy's memory, folded from events and plans.

`apply` takes in what happened (`core/fold/` has what each event does), `commit` what was decided (`core/commit.py`).
Nothing else changes the state, neither looks at a clock, and the same sequence always gives the same state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from skep.core.cluster import Cluster
from skep.core.commit import commit
from skep.core.events import Event, PolicyFailed
from skep.core.fold import HANDLERS
from skep.core.group import Groups
from skep.core.job import Job
from skep.core.knowledge import UNKNOWN, Knowledge, ProfileFigures
from skep.core.memory import Memory
from skep.core.nodes import NodeHealth
from skep.core.orders import Orders
from skep.core.plan import Plan
from skep.core.refusal import Waiting, Waits
from skep.core.timers import PLAN, Timer, Timers
from skep.core.view import Trigger, View


class State:
    """Everything the scheduler knows. Planners read it; only `apply` and `commit` write it."""

    def __init__(self, cluster: Cluster, measured: ProfileFigures = UNKNOWN) -> None:
        self.cluster = cluster
        self.knowledge = Knowledge(measured)
        """Of the speed and the length of jobs; `measured` is given, all else folded from events."""
        self.now_s = 0.0
        self.jobs: dict[str, Job] = {}
        self.open_jobs: dict[int, Job] = {}
        """Jobs that have not ended, by seq: the owners that the ledger names."""
        self.held_jobs: dict[int, Job] = {}
        """Jobs that hold part of the cluster, as seen, by seq in order of their start."""
        self.needed_by: dict[str, list[Job]] = {}
        """Jobs that wait until this one has succeeded."""
        self.groups: Groups = {}
        self.health = NodeHealth()
        """Which nodes are to be used."""
        self.waits = Waits()
        """Why pending jobs wait."""
        self.orders = Orders()
        """Actions for the engine, sent or not, that it has not answered yet."""
        self.memory = Memory()
        """What the policy remembers."""
        self.timers = Timers()
        """What is to happen to jobs by itself."""
        self.wake_s = math.inf
        """When the planner wants to be asked again."""
        self.trigger = Trigger()
        """What happened since the last decision."""
        self.policy = ""
        self.previous_policy = ""
        """The one before, as long as it may be trusted to take over again."""
        self.faults: dict[str, PolicyFailed] = {}
        """Policies that failed and were replaced, by the VC that had them ("": all)."""
        self.submitted_count = 0
        self.pending_count = 0
        self.event_count = 0
        self.decision_count = 0
        self.late_count = 0
        """Plans that were made on an earlier version than the one they were committed on."""
        self.dropped_count = 0
        """Steps of these that no longer made sense."""
        self.reshaped_at = 0
        """The version at which nodes last joined, left or changed."""

    def apply(self, event: Event) -> None:
        self.event_count += 1
        HANDLERS[type(event)](self, event)

    def commit(self, plan: Plan) -> None:
        commit(self, plan)

    def take_trigger(self) -> Trigger:
        trigger = self.trigger
        self.trigger = Trigger()
        return trigger

    # What is read -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.event_count + self.decision_count

    @property
    def waiting(self) -> Mapping[str, Waiting]:
        return self.waits.scopes

    @property
    def next_timer_s(self) -> float:
        """When something is due although nothing happens."""
        return min(self.wake_s, self.timers.next_s) if self.timers.by_job else self.wake_s

    def due(self, now_s: float) -> tuple[Timer, ...]:
        plan = [Timer(self.wake_s, PLAN)] if self.wake_s <= now_s else []
        return tuple(self.timers.due(now_s) + plan)

    def placed_jobs(self) -> list[Job]:
        """Jobs that are wanted somewhere, those that run first, in the order of their start."""
        held = [job for job in self.held_jobs.values() if job.allocation is not None]
        others = (job for job in self.jobs.values() if job.allocation is not None)
        return held + [job for job in others if job.seq not in self.held_jobs]

    def new_plan(self) -> Plan:
        return Plan(self.jobs, self.cluster, self.groups, version=self.version)

    def blank(self) -> State:
        return State(self.cluster.blank(), self.knowledge.measured)


def as_view(state: State) -> View:
    """What planners see of it; that it is one is for the type checker to say."""
    return state
