"""Nodes that join, leave and change: numbers stay, what jobs are in the way of waits, copies go on alike."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.builders import cluster
from tests.support.invariants import check
from tests.support.snapshot import snapshot, snapshot_cluster

from skep.core.actions import Action, Launch
from skep.core.cluster import GONE, Cluster, NodeSpec
from skep.core.events import (
    Event,
    Exit,
    JobSubmitted,
    NodeBack,
    NodeChanged,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    TasksExited,
    TasksStarted,
    TimerDue,
)
from skep.core.job import JobState
from skep.core.model import JobSpec, gpu_shape
from skep.core.nodes import changes_due, differences
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.policies.registry import Setting, build_planner


class World:
    def __init__(self, on: str = "2x4", policy: str = "fifo") -> None:
        state = State(cluster(on))
        self.scheduler = Scheduler(state, build_planner(policy, Setting(state.cluster)))
        self.now_s = 0.0

    @property
    def state(self) -> State:
        return self.scheduler.state

    def step(self, *events: Event) -> list[Action]:
        self.now_s += 1.0
        actions = self.scheduler.step(self.now_s, list(events))
        starts = [TasksStarted(each.job_id, 1.0, self.now_s) for each in actions if isinstance(each, Launch)]
        found = actions + self.step(*starts) if starts else actions
        check(self.state)
        for copy in (fork(self.state), load(dump(self.state), self.state.cluster.blank())):
            assert snapshot(copy) == snapshot(self.state), "indexes are as if the cluster had always been so"
        return found

    def where(self, job_id: str) -> list[str]:
        held = self.state.jobs[job_id].held
        return [] if held is None else [self.state.cluster.nodes[number].name for number in held.nodes()]


def job(name: str, gpus: int = 4, cpu: float = 0.0) -> JobSubmitted:
    return JobSubmitted(JobSpec(name, (gpu_shape(gpus, cpu=cpu),)))


def spec(name: str, gpus: int = 4, **more: object) -> NodeSpec:
    return NodeSpec(name, gpus, **more)  # type: ignore[arg-type]


def test_a_node_that_joins_is_used_at_once() -> None:
    world = World()
    world.step(job("a", 8), job("b", 4))
    assert world.where("b") == []
    world.step(NodeJoined(spec("new")))
    assert world.where("b") == ["new"]
    assert world.state.cluster.gpu_total == 12


def test_the_others_keep_their_numbers_and_a_number_is_given_again() -> None:
    world = World("3x4")
    world.step(job("a", 4), job("b", 4), job("c", 4))
    where = {name: world.where(name) for name in "abc"}
    first = where["a"][0]
    world.step(TasksExited("a", Exit.FINISHED, 1.0))
    world.step(NodeLeft(first))
    assert {name: world.where(name) for name in "bc"} == {name: where[name] for name in "bc"}
    assert world.state.cluster.nodes[0].spec == GONE
    assert first not in world.state.cluster.by_name
    world.step(job("d", 4))
    assert world.where("d") == [], "nobody is where nothing is"
    world.step(NodeJoined(spec("x")), NodeJoined(spec("y")))
    assert [node.name for node in world.state.cluster.nodes] == ["x", *(where["b"] + where["c"]), "y"]
    assert world.where("d") == ["x"]


def test_a_node_in_use_goes_when_the_last_job_has_gone() -> None:
    world = World("1x4")
    world.step(job("a", 2), job("b", 2))
    (name,) = world.where("a")
    world.step(NodeLeft(name))
    assert (world.where("a"), changes_due(world.state)) == ([name], [])
    world.step(TasksExited("a", Exit.FINISHED, 1.0), job("c", 2))
    assert world.where("c") == [], "nothing new is started there"
    world.step(NodeBack(name))
    assert world.where("c") == [], "that it is there does not mean that it stays"
    world.step(TasksExited("b", Exit.NODE_LOST, 1.0))
    assert changes_due(world.state) == [NodeLeft(name)]
    world.step(*changes_due(world.state))
    assert world.state.cluster.nodes == []
    assert (world.state.health.changes, world.state.health.lost) == ({}, set())
    world.step(NodeJoined(spec("other", 2)))
    assert sorted(world.where("b") + world.where("c")) == ["other"]


def test_one_that_is_to_leave_may_stay_after_all() -> None:
    world = World("1x4")
    world.step(job("a", 2))
    (name,) = world.where("a")
    world.step(NodeLeft(name))
    world.step(NodeJoined(world.state.cluster.by_name[name].spec))
    assert world.state.health.changes == {}
    world.step(job("b", 2))
    assert world.where("b") == [name]


def test_allocatable_may_grow_and_shrink() -> None:
    world = World("1x4")
    (name,) = world.state.cluster.by_name
    world.step(NodeChanged(spec(name, 4, cpu_milli=4000)))
    world.step(job("a", 2, cpu=4.0), job("b", 2, cpu=4.0))
    assert (world.where("a"), world.where("b")) == ([name], [])
    world.step(NodeChanged(spec(name, 8, cpu_milli=9000)))
    assert world.where("b") == [name]
    world.step(NodeChanged(spec(name, 3, cpu_milli=9000)))
    assert world.state.cluster.gpu_total == 8, "jobs have more than it will have"
    world.step(TasksExited("b", Exit.FINISHED, 1.0))
    assert changes_due(world.state) == [NodeChanged(spec(name, 3, cpu_milli=9000))]
    world.step(*changes_due(world.state))
    assert world.state.cluster.gpu_total == 3


def test_another_type_is_another_pool() -> None:
    world = World("1x4:v100+1x4:p100")
    old = world.state.cluster.nodes[0].spec
    world.step(NodeChanged(msgspec.structs.replace(old, gpu_type="k80")))
    assert [pool.gpu_type for pool in world.state.cluster.pools] == ["k80", "p100"]


def test_lost_and_drained_nodes_stay_so() -> None:
    world = World("3x4")
    one, two, three = world.state.cluster.by_name
    world.step(NodeLost(one), NodeDrained(two))
    world.step(NodeLeft(three), NodeJoined(spec("new", 2)))
    assert {node.name for node in world.state.cluster.by_name.values() if node.is_up} == {"new"}
    world.step(NodeLeft(one))
    assert (world.state.health.lost, world.state.health.drained) == (set(), {two})


@pytest.mark.parametrize("name", ["never", "left"])
def test_what_is_not_there_cannot_leave(name: str) -> None:
    world = World()
    before = snapshot_cluster(world.state.cluster)
    world.step(NodeLeft(name))
    assert snapshot_cluster(world.state.cluster) == before


def test_the_differences_of_two_clusters_make_one_of_the_other() -> None:
    before, after = cluster("2x4:v100+3x2:p100"), cluster("3x4:v100+1x2:p100")
    state = State(before)
    state.advance(state.now_s, differences(before, after))
    assert {node.spec for node in state.cluster.by_name.values()} == {node.spec for node in after.nodes}
    assert differences(state.cluster, after) == []


def test_thousands_join_in_one_moment() -> None:
    state = State(Cluster([]))
    assert state.advance(0.0, [NodeJoined(spec(f"n{number}", 8)) for number in range(5000)])
    assert state.cluster.gpu_total == 40_000
    assert not state.advance(0.0, [])


def test_a_node_that_joins_leaves_every_job_in_its_queue() -> None:
    """Tiresias: who has had much is in a lower queue, and nobody is put in line anew."""
    world, twin = (World("1x4", "tiresias-l:queues=10+1000") for _ in range(2))
    for each in (world, twin):
        each.step(job("old"))
        each.now_s = 100.0
        each.step(job("new"))
        each.step(TasksExited("old", Exit.PREEMPTED, 99.0))
        each.step(job("third"))
    before = snapshot(world.state)["memory"]
    assert before
    world.step(NodeJoined(spec("small", 1)))
    assert snapshot(world.state)["memory"] == before
    for each in (world, twin):
        each.now_s = 200.0
        each.step(TimerDue())
    states = [world.state.jobs[name].state for name in ("old", "new", "third")]
    assert states == [twin.state.jobs[name].state for name in ("old", "new", "third")]
    assert states == [JobState.PENDING, JobState.STOPPING, JobState.LAUNCHING], "one is left in the first queue"
