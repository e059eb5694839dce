"""Several commands in one turn: each sees the state as those before it leave it, and none takes the server down."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.errors import Conflict, InputError
from skep.core.events import NodeBack, NodeLost
from skep.core.record import decode
from skep.core.reports import Exited, Report
from skep.jobs.request import Completion, Request, TaskRole
from skep.service import commands
from skep.service.recover import recover
from skep.service.turn import Command

TWO = "nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}]\n"
OTHER_WAY = "nodes: [{name: b, gpus: 4}, {name: a, gpus: 4}]\n"
ONE = "nodes: [{name: a, gpus: 4}]\n"
VCS = TWO + "vcs: {red: 1 nodes, blue: 1 nodes}\n"
BLUE = TWO + "vcs: {blue: 2 nodes}\n"


def together(world: LiveWorld, *prepares: Any, reports: tuple[Report, ...] = ()) -> list[Any]:
    """What each was answered; an exception where it was refused."""
    asked = [Command(prepare, Future()) for prepare in prepares]
    world.turn(asked, list(reports))
    return [each.future.exception(0) or each.future.result(0) for each in asked]


def submit(*requests: Request) -> Any:
    return commands.submit(list(requests), "ann", "")


def test_a_job_and_a_cluster_without_its_node(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=TWO)
    ids, refused = together(world, submit(request(gpus=8)), commands.apply_cluster(ONE, "one", "root"))
    assert isinstance(refused, Conflict)
    assert "runs on node" in str(refused)
    world.settle()
    assert world.state(ids[0]) == "running"


def test_a_smaller_cluster_and_a_job_that_is_too_large_for_it(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=TWO)
    done, refused = together(world, commands.apply_cluster(ONE, "one", "root"), submit(request(gpus=8)))
    assert done is None
    assert "can never run here" in str(refused)


def test_a_job_and_a_cluster_without_its_vc(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    _, refused = together(world, submit(request(vc="red")), commands.apply_cluster(BLUE, "blue", "root"))
    assert "VC red has jobs" in str(refused)
    other = LiveWorld(Path(tempfile.mkdtemp(dir=tmp_path)), cluster=VCS)
    _, refused = together(other, commands.apply_cluster(BLUE, "blue", "root"), submit(request(vc="red")))
    assert "no virtual cluster 'red'" in str(refused)


def test_a_job_is_stopped_in_the_turn_of_its_submission(tmp_path: Path) -> None:
    """Its number can be guessed before it is told."""
    world = LiveWorld(tmp_path)
    ids, stopped, refused = together(
        world, submit(request(hold=True)), commands.stop("1", "bob", ""), commands.reprioritise("1", 5, "bob")
    )
    assert (ids, stopped) == (["1"], None)
    assert "it already finished (stopped)" in str(refused)
    assert world.state("1") == "stopped"


def test_what_ended_in_this_turn_is_tagged_as_it_is_now(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (job,) = world.submit(request(hold=True))
    together(world, commands.stop(job, "ann", ""), commands.hold(job, False, "ann"), commands.tag(job, ("x",), "ann"))
    found = world.store.job(int(job))
    assert found is not None
    assert (found[0].state, found[0].tags) == ("stopped", ("x",))


def test_a_job_needs_one_that_ends_in_the_same_turn(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (first,) = world.submit(request("first"))
    world.settle()
    exit = Exited(first, 1, 0)
    ((second,),) = together(world, submit(request("second", needs=(first,))), reports=(exit,))
    world.settle()
    assert world.state(second) == "running"
    world.ask(commands.stop(second, "ann", ""))
    stopped, refused = together(world, commands.use_policy("las", "root"), submit(request(needs=(second,))))
    assert stopped is None
    assert isinstance(refused, list)  # it is asked to stop, and has not gone yet


def test_nodes_are_known_by_name_whatever_their_number(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=TWO)
    world.ask(commands.apply_cluster(OTHER_WAY, "other", "root"))
    world.tell(NodeLost("b"))
    assert world.writer.state.health.lost == {"b"}
    together(world, commands.apply_cluster(TWO, "two", "root"), reports=(NodeLost("a"),))
    assert world.writer.state.health.lost == {"a", "b"}
    world.tell(NodeLost("nobody"), NodeBack("b"))
    assert world.writer.state.health.lost == {"a"}


def test_the_loss_of_a_node_is_logged_once_whoever_says_it(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=TWO)
    world.ask(commands.set_node("a", "lost", "root"))
    world.tell(NodeLost("a"))  # the engine has lost it, as it was told
    world.ask(commands.set_node("a", "up", "root"))
    world.tell(NodeBack("a"))
    world.ask(commands.set_node("a", "up", "root"))
    logged = [event for data in world.store.entries(0) for event in decode(data).events]
    lost, back = NodeLost("a", is_said=True), NodeBack("a", is_said=True)
    assert [event for event in logged if isinstance(event, NodeLost | NodeBack)] == [lost, back]


def test_a_node_is_lost_once_that_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = LiveWorld(tmp_path, cluster=TWO)

    def fail(writes: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(world.store, "commit", fail)
    with pytest.raises(OSError, match="full"):
        world.ask(commands.set_node("a", "lost", "root"))
    assert not world.puppet.lost
    world.crash()
    world.ask(commands.set_node("a", "lost", "root"))
    assert world.puppet.lost == {"a"}
    world.puppet.lost.clear()
    world.crash()  # perhaps before the engine heard of it
    assert world.puppet.lost == {"a"}
    assert world.writer.state.health.lost == {"a"}
    world.ask(commands.set_node("a", "up", "root"))
    assert (world.puppet.lost, world.writer.state.health.lost) == (set(), set())


def single(count: int, needed: int) -> Request:
    role = TaskRole(count=count, gpus=1, command="true", completion=Completion(min_succeeded=needed))
    return Request("single", {"w": role}, user="ann", vc="red", gang=False)


JOBS = st.sampled_from(["1", "2", "3", "4"])
COMMANDS = st.one_of(
    st.builds(lambda gpus, vc: submit(request(gpus=gpus, vc=vc)), st.integers(1, 8), st.sampled_from(["red", "blue"])),
    st.builds(lambda needs: submit(request("n", vc="blue", needs=needs)), st.tuples(JOBS, JOBS)),
    st.builds(lambda count: submit(single(count, 1)), st.integers(2, 3)),
    st.builds(lambda job: commands.stop(job, "ann", ""), JOBS),
    st.builds(lambda job, held: commands.hold(job, held, "ann"), JOBS, st.booleans()),
    st.builds(lambda job, priority: commands.reprioritise(job, priority, "ann"), JOBS, st.sampled_from([-1, 0, 500])),
    st.builds(lambda job: commands.tag(job, ("x",), "ann"), JOBS),
    st.builds(
        lambda job, held: commands.change(job, "ann", 7, held, ("y",)), JOBS, st.sampled_from([None, True, False])
    ),
    st.builds(
        lambda node, state: commands.set_node(node, state, "root"),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["up", "drained", "lost"]),
    ),
    st.builds(lambda policy: commands.use_policy(policy, "root"), st.sampled_from(["fifo", "las", "tiresias-l"])),
    st.builds(
        lambda text: commands.apply_cluster(text, "c", "root"), st.sampled_from([TWO, OTHER_WAY, ONE, VCS, BLUE])
    ),
)


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(st.lists(COMMANDS, min_size=1, max_size=4), min_size=1, max_size=5), ends=st.integers(0, 3))
def test_any_commands_may_meet_in_one_turn(turns: list[list[Any]], ends: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = LiveWorld(Path(folder), cluster=VCS)
        world.submit(request(gpus=4, vc="red"), request(gpus=4, vc="blue"), request(gpus=2, vc="red"))
        world.settle()
        for each in turns:
            running = list(world.writer.state.held_jobs.values())[:ends]
            reports = [Exited(job.id, job.held_launch, job.seq % 2) for job in running]
            for answer in together(world, *each, reports=tuple(reports)):
                assert not isinstance(answer, Exception) or isinstance(answer, InputError), repr(answer)
            world.settle()
        folded, _ = recover(world.store, from_start=True)
        assert snapshot(folded) == snapshot(world.writer.state)
        rows = {record.id: record.row for record in world.writer.book.records.values()}
        kept = {job_id: found[0] for job_id in rows if (found := world.store.job(int(job_id))) is not None}
        assert kept == rows
        world.store.close()
