"""What an engine really did: the seats it gave, what a launch waits for, and the causes of its exits."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.actions import Stop
from skep.core.cluster import Allocation, Cluster, NodeSpec, Slice
from skep.core.record import decode
from skep.core.reports import Exited, GivenSeat, LaunchFailed, Launching, Moved, Started
from skep.jobs.request import Elastic, Request, TaskRole
from skep.service.receive import allocation_given
from skep.service.recover import recompute, recover

CLUSTER = Cluster([NodeSpec("n0", 4), NodeSpec("n1", 4)])
TWO = Allocation((Slice(0, 0b11, cpu_milli=4000, memory_mib=200, tasks=2),), 2)


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def check_log(world: LiveWorld) -> None:
    assert snapshot(recover(world.store, from_start=True)[0]) == snapshot(world.writer.state)
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def free(world: LiveWorld) -> list[int]:
    return [node.free_mask for node in world.writer.state.cluster.nodes]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((GivenSeat("n0", (0,)), GivenSeat("n0", (1,))), TWO, id="as wanted"),
        pytest.param((GivenSeat("n0"), GivenSeat("n0")), TWO, id="on the same node, and which GPUs is unknown"),
        pytest.param(
            (GivenSeat("n0", (0,)), GivenSeat("n1", (3,))),
            Allocation(
                (
                    Slice(0, 0b1, cpu_milli=2000, memory_mib=100),
                    Slice(1, 0b1000, cpu_milli=2000, memory_mib=100),
                ),
                2,
            ),
            id="one elsewhere",
        ),
        pytest.param(
            (GivenSeat("n1"), GivenSeat("n1")),
            Allocation((Slice(1, 0b11, cpu_milli=4000, memory_mib=200, tasks=2),), 2),
            id="elsewhere, on any free GPUs",
        ),
        pytest.param((GivenSeat("n0", (0,)),), None, id="a task is missing"),
        pytest.param((GivenSeat("n0", (0,)), GivenSeat("n9", (1,))), None, id="a node that is unknown"),
        pytest.param((GivenSeat("n0", (0,)), GivenSeat("n0", (4,))), None, id="a GPU that does not exist"),
        pytest.param((GivenSeat("n0", (0,)), GivenSeat("n0", (1, 2))), None, id="too many GPUs"),
    ],
)
def test_seats_become_an_allocation(given: tuple[GivenSeat, ...], expected: Allocation | None) -> None:
    assert allocation_given(CLUSTER, TWO, given) == expected


def test_the_books_follow_what_the_engine_gave(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.tell(Started(job, 1, (GivenSeat("n1", (3,)),)))
    assert world.state(job) == "running"
    assert free(world) == [0b1111, 0b0111]
    assert world.store.attempts(int(job))[-1].nodes == ("n1",)
    check_log(world)
    world.end(job)
    assert free(world) == [0b1111, 0b1111]


def test_a_job_on_gpus_of_another_one_is_stopped_and_comes_back(world: LiveWorld) -> None:
    first, second = world.submit(request(gpus=4), request())
    world.tell(Started(first, 1), Started(second, 1, (GivenSeat("n0", (0,)),)))
    assert world.puppet.asked[-1] == Stop(second, "preempted", 1)
    assert free(world) == [0, 0b1111]
    world.tell(Exited(second, 1, 143, was_stopped=True))
    assert world.puppet.launched[second, 2].slices[0].node == 1
    check_log(world)


def test_a_job_on_an_unknown_node_is_stopped(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.tell(Started(job, 1, (GivenSeat("elsewhere"),)))
    assert world.puppet.asked[-1] == Stop(job, "preempted", 1)
    check_log(world)


def test_in_a_vc_a_job_does_not_keep_cells_that_were_not_bound_for_it(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="nodes: [{count: 2, name: n, gpus: 4}]\nvcs: {red: 1 node, blue: 1 node}\n")
    (job,) = world.submit(request(vc="red"))
    bound = world.writer.state.jobs[job].bound
    assert bound is not None
    other = "n0" if bound.slices[0].node else "n1"
    world.tell(Started(job, 1, (GivenSeat(other, (0,)),)))
    assert world.puppet.asked[-1] == Stop(job, "preempted", 1)
    check_log(world)


def test_a_report_that_comes_again_changes_nothing(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    started = Started(job, 1, (GivenSeat("n1", (3,)),))
    world.tell(started, started)
    world.tell(started)
    assert free(world) == [0b1111, 0b0111]
    check_log(world)


def test_a_move_may_end_elsewhere_too(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, policy="afs-l:restart=0")
    role = TaskRole(count=1, gpus=1, command="true")
    grows = Request("grows", {"w": role}, elastic=Elastic("w", 1, 2), expect_s=9000.0)
    first, job = *world.submit(request(gpus=7, expect_s=1.0, preemptible=False)), *world.submit(grows)
    world.settle()
    world.tell(Exited(first, 1, 0))
    launch = world.writer.state.jobs[job].launches
    world.tell(Moved(job, launch, (GivenSeat("n0", (2,)), GivenSeat("n1", (1,)))))
    assert free(world) == [0b1011, 0b1101]
    assert world.writer.state.jobs[job].held == world.writer.state.jobs[job].bound
    check_log(world)


def test_what_a_launch_waits_for_is_shown_until_it_runs(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.tell(Launching(job, 1, "pulling image a/b:1"))
    world.tell(Launching(job, 1, "pulling image a/b:1"), Launching(job, 9, "another launch"))
    found = world.store.job(int(job))
    assert found is not None
    assert (found[0].state, found[0].reason) == ("launching", "pulling image a/b:1")
    notices = [each.text for each in world.store.notices(0, job, 100) if each.kind == "launching"]
    assert notices == ["pulling image a/b:1"]
    world.tell(Started(job, 1))
    found = world.store.job(int(job))
    assert found is not None
    assert (found[0].state, found[0].reason) == ("running", "")
    assert world.store.attempts(int(job))[-1].phrase == ""
    world.tell(Launching(job, 1, "late"))
    assert world.store.attempts(int(job))[-1].phrase == ""
    check_log(world)


@pytest.mark.parametrize(("cause", "then"), [("image", "failed"), ("config", "failed"), ("rejected", "pending")])
def test_what_keeps_a_launch_from_starting(world: LiveWorld, cause: str, then: str) -> None:
    (job,) = world.submit(request())
    world.tell(LaunchFailed(job, 1, "what the engine said", cause))
    found = world.store.job(int(job))
    assert found is not None
    assert found[0].state == then
    assert "what the engine said" in found[0].reason


@pytest.mark.parametrize(
    ("cause", "retries"), [("evicted", 1), ("deleted", 1), ("unreachable", 0)], ids="job was {}".format
)
def test_a_job_that_others_ended_comes_back(world: LiveWorld, cause: str, retries: int) -> None:
    (job,) = world.submit(request())
    world.tell(Started(job, 1))
    world.tell(Exited(job, 1, 137, cause=cause))
    world.now_s += 100.0
    world.tell()
    assert world.writer.state.jobs[job].launches == 2
    assert world.writer.state.jobs[job].retries == retries
