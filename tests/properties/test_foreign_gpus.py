"""GPUs of other tenants are known by number only: whatever comes and goes, no job is started on a full node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import job
from tests.support.invariants import check
from tests.support.snapshot import snapshot

from skep.core.actions import Launch
from skep.core.cluster import Cluster, NodeSpec
from skep.core.events import Event, Exit, JobSubmitted, OthersChanged, TasksExited, TasksStarted
from skep.core.others import NodeUse
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.policies.registry import Setting, build_planner

GPUS = 4
NODES = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 8), st.integers(1, 100)),
        st.tuples(st.just("exit"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("start"), st.just(0), st.just(0)),
        st.tuples(st.just("others"), st.integers(0, 2), st.integers(0, GPUS + 1)),
    ),
    min_size=1,
    max_size=30,
)


class Foreign:
    def __init__(self, policy: str) -> None:
        self.state = State(Cluster([NodeSpec(name, GPUS) for name in NODES]))
        self.scheduler = Scheduler(self.state, build_planner(policy, Setting(self.state.cluster)))
        self.at_s = 0.0
        self.used = dict.fromkeys(NODES, 0)

    def step(self, *events: Event) -> None:
        self.at_s += 10.0
        actions = self.scheduler.step(self.at_s, list(events))
        check(self.state)
        for action in actions:
            if isinstance(action, Launch):
                for node in action.allocation.nodes():
                    assert self.physical(node) <= GPUS, f"{action} on a full node"

    def physical(self, node: int) -> int:
        """What jobs hold there, and what others use."""
        held = [each.held for each in self.state.jobs.values() if each.held is not None]
        jobs = sum(piece.gpus.bit_count() for each in held for piece in each.slices if piece.node == node)
        return jobs + min(self.used[NODES[node]], GPUS)

    def do(self, kind: str, one: int, two: int) -> None:
        jobs = list(self.state.jobs.values())
        if kind == "submit":
            self.step(JobSubmitted(job(one, work=float(two), id=str(len(jobs))).spec))
        elif kind == "others":
            self.used[NODES[one]] = two
            self.step(OthersChanged(NODES[one], (NodeUse(count=two),) if two else ()))
        elif kind == "start":
            started = [each for each in jobs if each.held is not None and each.seq not in self.state.held_jobs]
            self.step(*(TasksStarted(each.id, 1.0, self.at_s) for each in started))
        else:
            held = [each for each in jobs if each.held is not None]
            if held:
                leaving = held[one % len(held)]
                exit = Exit.PREEMPTED if leaving.seq in self.state.orders.leaving else Exit.FINISHED
                self.step(TasksExited(leaving.id, exit, 1.0))


@pytest.mark.parametrize("policy", ["fifo:walk=skip", "srtf", "las"])
@given(steps=STEPS)
def test_no_job_starts_on_a_full_node(policy: str, steps: list[tuple[str, int, int]]) -> None:
    run = Foreign(policy)
    for step in steps:
        run.do(*step)
    assert snapshot(load(dump(run.state), run.state.cluster.blank())) == snapshot(run.state)
    for name in NODES:
        run.used[name] = 0
        run.step(OthersChanged(name, ()))
    assert all(node.is_up for node in run.state.cluster.nodes)
