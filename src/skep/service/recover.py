"""From the store back to the state: the last snapshot, and the log since then."""

from __future__ import annotations

import msgspec

from skep.clusters.read import read_text
from skep.core.actions import Action, Launch, Move, Stop
from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.events import ClusterChanged, JobsForgotten, PolicyChanged
from skep.core.ports import Planner
from skep.core.record import Entry, PlanRecord, decode, encode, fold, record
from skep.core.snapshot import load
from skep.core.state import State
from skep.core.step import Change, Scheduler
from skep.policies.registry import Setting
from skep.policies.shared.build import build_whole
from skep.service.store import Store


class Ground(msgspec.Struct):
    """Where jobs run and by which policy, as the log last said. `text` is the cluster's file or spec."""

    name: str = ""
    text: str = ""
    policy: str = ""
    layout: Layout | None = None

    def read(self) -> Cluster:
        cluster, self.layout = read_text(self.text, self.name)
        return cluster

    def follow(self, entry: Entry) -> Cluster | None:
        """The new cluster, if the entry tells of one."""
        cluster = None
        for event in entry.events:
            if isinstance(event, PolicyChanged):
                self.policy = event.policy
            elif isinstance(event, ClusterChanged):
                self.name, self.text = event.name, event.text
                cluster = self.read()
        return cluster

    def planner(self, cluster: Cluster) -> Planner:
        return build_whole(self.policy, Setting(cluster), self.layout)


def recover(store: Store, *, from_start: bool = False) -> tuple[State, Ground]:
    """`from_start`: fold the whole log, as far as it is kept, without a snapshot."""
    ground = Ground()
    state = State(Cluster([], ""))
    after = 0
    saved = None if from_start else store.snapshot()
    if saved is not None:
        after, ground.name, ground.text, ground.policy, data = saved
        state = load(data, ground.read())
    elif store.first_entry() > 1:
        raise InputError("the log does not begin at the first entry, and there is no snapshot")
    for data in store.entries(after):
        entry = decode(data)
        fold(state, entry, ground.follow(entry))
    return state, ground


def resume_actions(state: State) -> list[Action]:
    """What the engine may not have been told before the crash. It knows by their numbers what it has done already."""
    actions: list[Action] = []
    for job in state.jobs.values():
        if job.held is None:
            continue
        actions.append(Launch(job.id, job.held, job.held_launch))
        if job.seq in state.leaving:
            actions.append(Stop(job.id, job.reason if job.is_ending else "preempted"))
        elif job.seq in state.moving and job.launches > job.held_launch:
            assert job.bound is not None
            actions.append(Move(job.id, job.bound, job.launches))
    return actions


def recompute(entries: list[Entry]) -> list[tuple[Entry, list[PlanRecord]]]:
    """Decide again on what was recorded, as the simulator would; entries where that decides otherwise.

    What is said about those who wait may differ where a restart made the server say it again.
    """
    ground = Ground()
    scheduler: Scheduler | None = None
    different = []
    for entry in entries:
        cluster = ground.follow(entry)
        change = None
        if scheduler is None:
            state = State(cluster or Cluster([], ""))
            scheduler = Scheduler(state, ground.planner(state.cluster))
        elif cluster is not None or has(entry, PolicyChanged):
            change = Change(ground.planner(cluster or scheduler.state.cluster), cluster)
        elif has(entry, JobsForgotten):
            change = Change(scheduler.planner)
        scheduler.step(entry.at_s, entry.events, change)
        again = decode(encode(Entry(0.0, [], [record(plan) for plan in scheduler.plans]))).plans
        if [decided(plan) for plan in again] != [decided(plan) for plan in entry.plans]:
            different.append((entry, again))
    return different


def has(entry: Entry, kind: type) -> bool:
    return any(isinstance(event, kind) for event in entry.events)


def decided(plan: PlanRecord) -> tuple[object, ...]:
    return plan.decisions, plan.rejects
