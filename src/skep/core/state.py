"""The state: the cluster, the jobs and the policy's memory, folded from events and plans.

It has three doors: `advance` takes the events of an instant (`core/fold/` has the effect of each), `commit` takes a
plan (`core/commit.py`), `send` books the actions that go to the engine (`core/orders.py`). Nothing else changes the
state, with two exceptions that take all of it back: a plan in trial writes `allocation` and `state` of jobs and the
books of the cluster, until it is committed (`core/plan.py`); `with_nodes` brings nodes up while a question is asked.
No door uses a clock, so the same sequence always gives the same state.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.commit import commit
from skep.core.events import Event, PolicyFailed
from skep.core.fold import HANDLERS
from skep.core.group import Groups
from skep.core.job import Job
from skep.core.knowledge import UNKNOWN, Knowledge, KnowledgeView, ProfileFigures, ShownKnowledge
from skep.core.memory import WHOLE_PLANNER, Memory
from skep.core.model import READABLE, JobSpec, Need, shown_to
from skep.core.nodes import NodeHealth, settle_nodes
from skep.core.orders import Orders, note_sent, reconcile
from skep.core.plan import Plan
from skep.core.refusal import Waiting, Waits
from skep.core.timers import PLAN, Timer, Timers
from skep.core.view import JobView, Trigger, View

if TYPE_CHECKING:
    from skep.core.ports import Planner


class State:
    """Everything the scheduler knows. Planners read it; only `advance`, `commit` and `send` write it."""

    def __init__(self, cluster: Cluster, measured: ProfileFigures = UNKNOWN) -> None:
        self.cluster = cluster
        self.known = Knowledge(measured)
        """Speeds and lengths of jobs; `measured` is given, everything else is folded from events."""
        self.knowledge: KnowledgeView = self.known
        """The part of it that the planner declares."""
        self.shows: Callable[[str], frozenset[Need]] | None = None
        """What the planner declares for the jobs of a VC, if that is part of their specs."""
        self.report_count = 0
        """Increases when a running job reports its rate or progress, or moves or resumes: what was predicted from its
        rate may be wrong."""
        self.now_s = 0.0
        self.jobs: dict[str, Job] = {}
        self.open_jobs: dict[int, Job] = {}
        """Jobs that have not ended, by seq, which is their owner number in the ledger."""
        self.held_jobs: dict[int, Job] = {}
        """Jobs that hold part of the cluster, as seen, by seq in the order of their start."""
        self.needed_by: dict[str, list[Job]] = {}
        """Jobs that wait for this one to succeed."""
        self.groups: Groups = {}
        self.health = NodeHealth()
        """Which nodes may be used."""
        self.waits = Waits()
        """Why pending jobs wait."""
        self.orders = Orders()
        """Actions for the engine, sent or not, that it has not answered yet."""
        self.memory = Memory()
        """What the policy remembers."""
        self.timers = Timers()
        """Pending timers of jobs."""
        self.wake_s = math.inf
        """When the planner wants to be called again."""
        self.trigger = Trigger()
        """What the planner has not seen yet: everything since the last plan was committed."""
        self.is_woken = False
        """True if the planner must be called."""
        self.policy = ""
        self.previous_policy = ""
        """The previous policy, as long as it may be used as a fallback."""
        self.faults: dict[str, PolicyFailed] = {}
        """Policies that failed and were replaced, by the VC that had them ("": the whole cluster)."""
        self.submitted_count = 0
        self.pending_count = 0
        self.version = 0
        """The number of events and decisions so far."""
        self.decision_count = 0

    # The three doors --------------------------------------------------------------------------------------------

    def advance(self, at_s: float, events: Sequence[Event]) -> bool:
        """Apply the events of one instant. True if nodes have joined, left or changed."""
        self.now_s = at_s
        for event in events:
            self.version += 1
            HANDLERS[type(event)](self, event)
        return settle_nodes(self) if self.health.is_told or self.health.crowded else False

    commit = commit
    """What the plan decides becomes the wanted state. The planner has seen everything so far."""

    def send(self) -> list[Action]:
        """Book what is due as sent, and return it for the engine."""
        actions, waiting = reconcile(self)
        note_sent(self, actions, waiting)
        return actions

    def show(self, planner: Planner) -> None:
        """From now on what can be read here is what this planner declares. That is no part of the state: it is neither
        logged nor saved."""
        self.knowledge = ShownKnowledge(self.known, planner.declared)
        for job in self.open_jobs.values():
            job.spec = shown_to(planner.needs_in(job.spec.vc), job.spec)
        self.shows = planner.needs_in if planner.declared & READABLE else None

    def wake(self) -> Trigger:
        """For the doors: the planner must be called, and sees what is added to the trigger."""
        self.is_woken = True
        return self.trigger

    def candidate(self, spec: JobSpec) -> Job:
        """A job as it would be if it were submitted now; it is no part of the state."""
        job = Job(spec, self.submitted_count, self.now_s)
        self.suit(job)
        return job

    def suit(self, job: Job) -> None:
        """Find the shapes in which this job makes progress on the present cluster."""
        standstills = self.known.standstills
        if standstills.are_known:
            job.shapes = standstills.shapes(job.spec, tuple([pool.gpu_type for pool in self.cluster.pools]))

    # Reading ----------------------------------------------------------------------------------------------------

    @property
    def event_count(self) -> int:
        return self.version - self.decision_count

    @property
    def waiting(self) -> Mapping[str, Waiting]:
        return self.waits.scopes

    @property
    def next_timer_s(self) -> float:
        """The time of the next timer or wake-up."""
        return min(self.wake_s, self.timers.next_s) if self.timers.by_job else self.wake_s

    def due(self, now_s: float) -> tuple[Timer, ...]:
        plan = [Timer(self.wake_s, PLAN)] if self.wake_s <= now_s else []
        return tuple(self.timers.due(now_s) + plan)

    def has(self, job: JobView) -> bool:
        return True

    def placed_jobs(self) -> list[Job]:
        """Jobs with a wanted allocation: running ones first, in the order of their start."""
        held = [job for job in self.held_jobs.values() if job.allocation is not None]
        others = (job for job in self.jobs.values() if job.allocation is not None)
        return held + [job for job in others if job.seq not in self.held_jobs]

    def new_plan(self) -> Plan:
        return Plan(self.jobs, self.cluster, self.groups, WHOLE_PLANNER, self.version)

    def blank(self) -> State:
        blank = State(self.cluster.blank(), self.known.measured)
        blank.knowledge, blank.shows = self.knowledge, self.shows
        return blank

    def unusable(self) -> dict[str, str]:
        health = self.health
        found = {name: ", ".join(conditions) for name, conditions in health.conditions.items()}
        found |= dict.fromkeys(health.drained, "drained") | dict.fromkeys(health.lost, "lost")
        there = [name for name in sorted(found) if name in self.cluster.by_name and name not in health.changes]
        return {name: found[name] for name in there}

    @contextlib.contextmanager
    def with_nodes(self, names: Collection[str]) -> Iterator[Plan]:
        nodes = [node for name in names if not (node := self.cluster.by_name[name]).is_up]
        plan = self.new_plan()
        try:
            for node in nodes:
                self.cluster.restore(node)
            yield plan
        finally:
            plan.rollback(0)
            for node in nodes:
                self.cluster.lose(node)


def as_view(state: State) -> View:
    """The state as planners see it; lets the type checker verify that it is a `View`."""
    return state
