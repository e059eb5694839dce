"""Tenants that are none of Skep's jobs: booked like jobs, after them where they want the same."""

from __future__ import annotations

from tests.support.builders import job
from tests.support.invariants import check
from tests.support.snapshot import snapshot

from skep.core.allocation import Allocation, Slice
from skep.core.cluster import Cluster, NodeSpec
from skep.core.events import (
    Event,
    Exit,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    OthersChanged,
    TasksExited,
    TasksStarted,
)
from skep.core.others import NodeUse
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.policies.registry import Setting, build_planner


class Run:
    """Two nodes of four GPUs under fifo:walk=skip."""

    def __init__(self) -> None:
        self.state = State(Cluster([NodeSpec(name, 4, cpu_milli=8000, memory_mib=100) for name in ("a", "b")]))
        self.scheduler = Scheduler(self.state, build_planner("fifo:walk=skip", Setting(self.state.cluster)))
        self.at_s = 0.0

    def step(self, *events: Event) -> None:
        self.at_s += 1
        self.scheduler.step(self.at_s, list(events))
        check(self.state)

    def submit(self, name: str, gpus: int) -> None:
        self.step(JobSubmitted(job(gpus, id=name).spec))

    def start(self, name: str, gpus: int) -> None:
        self.submit(name, gpus)
        self.step(TasksStarted(name, 1.0, self.at_s))

    def end(self, name: str) -> None:
        self.step(TasksExited(name, Exit.FINISHED, 1.0))

    def nodes_of(self, name: str) -> list[str]:
        bound = self.state.jobs[name].bound
        return [self.state.cluster.nodes[node].name for node in bound.nodes()] if bound is not None else []

    def free(self, name: str) -> int:
        return self.state.cluster.by_name[name].free


def test_nobody_gets_what_others_use() -> None:
    run = Run()
    run.step(OthersChanged("a", (NodeUse(0b0011),)))
    run.submit("four", 4)
    run.submit("two", 2)
    assert run.nodes_of("four") == ["b"]
    assert run.nodes_of("two") == ["a"]
    run.submit("more", 1)
    assert run.nodes_of("more") == []


def test_what_others_leave_goes_to_who_waits() -> None:
    run = Run()
    run.step(OthersChanged("a", (NodeUse(0b1111),)), OthersChanged("b", (NodeUse(0b1111, milli=500),)))
    run.submit("waits", 4)
    assert run.nodes_of("waits") == []
    run.step(OthersChanged("b", ()))
    assert run.nodes_of("waits") == ["b"]
    assert list(run.state.health.others) == ["a"]


def test_where_a_job_is_in_the_way_they_are_booked_when_it_has_gone() -> None:
    run = Run()
    run.start("job", 4)
    run.start("other", 4)
    run.step(OthersChanged("a", (NodeUse(0b0110, cpu_milli=9000, memory_mib=40),)))
    assert run.state.health.crowded == {"a"}  # The GPUs are held, and there are not so many CPUs.
    run.submit("waits", 4)
    run.end(next(job.id for job in run.state.jobs.values() if run.nodes_of(job.id) == ["a"]))
    assert run.nodes_of("waits") == []
    assert run.free("a") == 2
    node = run.state.cluster.by_name["a"]
    assert (node.cpu_free, node.memory_free) == (0, 60)


def test_shares_of_others_leave_the_rest_of_a_gpu() -> None:
    run = Run()
    run.step(OthersChanged("a", (NodeUse(0b0001, milli=300, gpu_mem_mib=10), NodeUse(0b0001, milli=300))))
    node = run.state.cluster.by_name["a"]
    assert node.milli_left(0) == 400
    assert node.others_mask == 0b0001
    assert run.state.cluster.by_name["b"].others_mask == 0
    assert run.state.cluster.neighbours(Allocation((Slice(0, 0b0001, 400),), 0.4), 7) == []
    run.state.cluster.take(Allocation((Slice(0, 0b0011, 400),), 0.8), 7)
    assert node.others_mask == 0b0001  # a job beside them makes no GPU theirs, and takes none from them


def test_counted_gpus_are_booked_on_any_free_ones_and_stay_there() -> None:
    run = Run()
    run.start("job", 2)
    on = run.nodes_of("job")[0]
    run.step(OthersChanged(on, (NodeUse(count=1, cpu_milli=1000), NodeUse(0b0100))))
    node = run.state.cluster.by_name[on]
    assert (node.free, node.others_mask) == (0, 0b1100)
    run.end("job")
    run.step(OthersChanged(on, (NodeUse(count=2), NodeUse(0b0100))))
    assert node.others_mask == 0b1110
    run.step(OthersChanged(on, (NodeUse(count=1),)))
    assert node.others_mask.bit_count() == 1


def test_a_deficit_is_kept_while_a_job_is_in_the_way() -> None:
    run = Run()
    run.start("job", 3)
    on = run.nodes_of("job")[0]
    run.step(OthersChanged(on, (NodeUse(count=3),)))
    assert run.state.health.others[on].deficit == 2
    assert not run.state.cluster.by_name[on].is_up
    for again in (fork(run.state), load(dump(run.state), run.state.cluster.blank())):
        assert snapshot(again) == snapshot(run.state)
        assert not again.cluster.by_name[on].is_up
    run.submit("four", 4)
    run.submit("waits", 1)
    assert run.nodes_of("four") != [on]
    run.end("job")
    assert run.state.health.others[on].deficit == 0
    assert (run.free(on), run.nodes_of("waits")) == (0, [on])


def test_others_with_more_gpus_than_there_are_leave_nothing() -> None:
    run = Run()
    run.step(OthersChanged("a", (NodeUse(count=9),)))
    assert run.free("a") == 0
    run.step(OthersChanged("a", ()))
    assert run.free("a") == 4
    assert run.state.cluster.by_name["a"].is_up


def test_they_stay_where_the_node_changes_and_go_with_it() -> None:
    run = Run()
    run.step(OthersChanged("b", (NodeUse(0b1000),)))
    run.step(NodeChanged(NodeSpec("b", 2, cpu_milli=8000, memory_mib=100)))
    assert run.free("b") == 2
    run.step(NodeChanged(NodeSpec("b", 6, cpu_milli=8000, memory_mib=100)))
    assert run.free("b") == 5
    run.step(NodeLeft("b"))
    assert run.state.health.others == {}


def test_a_node_that_others_crowd_may_leave_and_come_back() -> None:
    run = Run()
    run.step(OthersChanged("b", (NodeUse(cpu_milli=9000),)))  # More than it has.
    assert run.state.health.crowded == {"b"}
    run.step(NodeLeft("b"))
    assert run.state.health.crowded == set()
    run.submit("one", 1)
    run.step(NodeJoined(NodeSpec("b", 4, cpu_milli=8000, memory_mib=100)))
    assert run.state.cluster.by_name["b"].cpu_free == 8000


def test_what_they_cannot_have_after_a_change_is_booked_later() -> None:
    run = Run()
    run.step(OthersChanged("a", (NodeUse(cpu_milli=8000),)))
    run.step(NodeChanged(NodeSpec("a", 4, cpu_milli=4000, memory_mib=100)))
    assert run.state.health.crowded == {"a"}
    run.step(NodeChanged(NodeSpec("a", 4, cpu_milli=9000, memory_mib=100)))
    assert run.state.health.crowded == set()
    assert run.state.cluster.by_name["a"].cpu_free == 1000


def test_they_are_in_snapshots_and_forks() -> None:
    run = Run()
    run.start("job", 4)
    on = run.nodes_of("job")[0]
    run.step(OthersChanged(on, (NodeUse(0b0011, cpu_milli=1000),)))
    for again in (fork(run.state), load(dump(run.state), run.state.cluster.blank())):
        check(again)
        assert snapshot(again) == snapshot(run.state)
        assert again.health.crowded == {on}


def test_a_node_that_nobody_knows_has_no_others() -> None:
    run = Run()
    run.step(OthersChanged("z", (NodeUse(0b1),)))
    assert run.state.health.others == {}
