"""Recovery of the state from the store: the last snapshot, and the log since then."""

from __future__ import annotations

import logging
import sqlite3
from functools import partial

import msgspec

from skep.core.actions import Action, Launch, Limit, Suspend, Tune, named
from skep.core.cluster import WHOLE, Cluster
from skep.core.errors import InputError, InvariantBroken
from skep.core.events import ATTACHES, ClusterChanged, PolicyChanged, PolicyFailed
from skep.core.orders import in_flight
from skep.core.ports import Planner, Wanted
from skep.core.record import Entry, PlanRecord, decode, encode, fold, record
from skep.core.snapshot import load
from skep.core.state import State
from skep.core.step import PlannerChange, Scheduler
from skep.policies.idle import Idle
from skep.service.planning import Ground
from skep.service.progress import PresentFigures
from skep.service.store import Damaged, Store

DAMAGE = (
    *(Damaged, InputError, InvariantBroken, sqlite3.Error, msgspec.MsgspecError),
    *(LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError),
)
"""Exceptions by which damage of the stored data shows."""

log = logging.getLogger("skep")


def recover(store: Store, figures: PresentFigures | None = None, *, from_start: bool = False) -> tuple[State, Ground]:
    """From the newest intact snapshot, and the log since then. `from_start`: from the log alone."""
    figures = figures or PresentFigures()
    seqs = [] if from_start else store.snapshot_seqs()
    if store.first_entry() == 1:
        seqs.append(0)
    if not seqs:
        raise Damaged("its log does not begin at the first entry, and there is no snapshot")
    damaged = []
    for seq in seqs[:-1]:
        try:
            found = _from(store, seq, figures)
            break
        except DAMAGE as error:
            log.warning(
                "%s: the snapshot at entry %d is damaged; older data is used instead: %s", store.path, seq, error
            )
            damaged.append(seq)
    else:
        found = _from(store, seqs[-1], figures)
    store.drop_snapshots(damaged)  # otherwise it would count as one of the two that are kept
    return found


def _from(store: Store, seq: int, figures: PresentFigures) -> tuple[State, Ground]:
    """`seq`: of a snapshot, or 0 for the beginning of the log."""
    ground = Ground()
    state = State(Cluster([], ""), figures)
    if seq:
        saved = store.snapshot(seq)
        ground.files = saved.files
        ground.name, ground.text, ground.policy = saved.cluster_name, saved.cluster, saved.policy
        cluster = ground.read()
        figures.see(cluster)
        state = load(saved.state, cluster, figures)
        for fault in state.faults.values():
            if fault.vc:
                ground.replace(fault)
    fold_since(store, seq, state, ground, figures)
    return state, ground


def fold_since(store: Store, seq: int, state: State, ground: Ground, figures: PresentFigures) -> None:
    """Apply what was logged after entry `seq`, the last one that the state has."""
    for data in store.entries(seq):
        entry = decode(data)
        figures.foresee(state.cluster, entry.events, ground.follow(entry.events))
        fold(state, entry)


def wanted(state: State, store: str = "", *, is_new: bool = False) -> Wanted:
    """Actions that may not have reached the engine before the crash. It recognises by launch numbers what it has
    done."""
    held = [job for job in state.jobs.values() if job.held is not None]
    known = {(job.id, launch) for job in held for launch in (job.held_launch, job.launches)}
    return Wanted(named(resume_actions(state), state.cluster), known, set(state.health.lost), store, is_new)


def resume_actions(state: State) -> list[Action]:
    actions: list[Action] = []
    for job in state.jobs.values():
        if job.held is None:
            continue
        actions.append(Launch(job.id, job.held.resumes_as or job.held, job.held_launch))  # also has its terms
        if job.limit_milli < WHOLE:
            actions.append(Limit(job.id, job.held_launch, job.limit_milli))
        if job.settings:
            actions.append(Tune(job.id, job.held_launch, job.settings))
        if job.held.memory is not None:
            actions.append(Suspend(job.id, job.held_launch, job.held.memory))
        told = in_flight(state, job)
        if told is not None:
            actions.append(told)
    return actions


def recompute(entries: list[Entry]) -> list[tuple[Entry, list[PlanRecord]]]:
    """Decide again on the recorded events, as the simulator would. Returns the entries with different decisions.

    Waiting may differ: a restart makes the planner report the reasons again.
    """
    ground = Ground()
    scheduler: Scheduler | None = None
    different = []
    for entry in entries:
        ground.follow(entry.events)
        change = None
        if scheduler is None:
            scheduler = Scheduler(State(Cluster([], "")), Idle())
            change = PlannerChange(ground.planner)
        elif any(has(entry, kind) for kind in (ClusterChanged, PolicyChanged, PolicyFailed)):
            change = PlannerChange(ground.planner)
        elif any(has(entry, kind) for kind in ATTACHES):
            change = PlannerChange(partial(same, scheduler.planner))
        scheduler.step(entry.at_s, entry.events, change)
        again = decode(encode(Entry(0.0, [], [record(plan) for plan in scheduler.plans]))).plans
        if [decided(plan) for plan in again] != [decided(plan) for plan in entry.plans]:
            different.append((entry, again))
    return different


def same(planner: Planner, cluster: Cluster) -> Planner:
    return planner


def has(entry: Entry, kind: type) -> bool:
    return any(isinstance(event, kind) for event in entry.events)


def decided(plan: PlanRecord) -> tuple[object, ...]:
    return plan.decisions, plan.rejects
