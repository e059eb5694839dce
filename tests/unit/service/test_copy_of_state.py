"""The copy of the state on which planners work: the same, apart from the first, and cheap."""

from __future__ import annotations

from pathlib import Path

from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.snapshot import dump, fork
from skep.service import commands

VCS = "nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}]\nvcs: {red: 1 nodes, blue: 1 nodes}\n"


def busy(folder: Path) -> LiveWorld:
    """Jobs in every state."""
    world = LiveWorld(folder, cluster=VCS, policy="tiresias-l")
    ended, leaves, _ = world.submit(*(request(gpus=2, vc=vc) for vc in ("red", "red", "blue")))
    world.settle()
    world.end(ended)
    needed, *_ = world.submit(*(request(gpus=gpus, vc="red") for gpus in (4, 2, 1)))
    world.submit(request(needs=(needed,), vc="blue"), request(hold=True, vc="red"))
    world.ask(commands.stop(leaves, "ann", ""))
    world.ask(commands.drain("b", True, "root"))
    return world


def test_a_copy_is_the_same(tmp_path: Path) -> None:
    state = busy(tmp_path).writer.state
    copy = fork(state)
    assert dump(copy) == dump(state)
    assert snapshot(copy)["cluster"] == snapshot(state)["cluster"]
    assert [scope.jobs for scope in copy.waiting.values()] == [scope.jobs for scope in state.waiting.values()]


def test_what_is_done_to_a_copy_does_not_reach_the_first(tmp_path: Path) -> None:
    state = busy(tmp_path).writer.state
    before, cluster = dump(state), snapshot(state)["cluster"]
    copy = fork(state)
    for job in copy.jobs.values():
        job.state, job.bound, job.held, job.seq = "spoiled", None, None, 0  # type: ignore[assignment]
        if job.waiting is not None:
            job.waiting.jobs = job.waiting.quota_s = 99
    for found in (
        copy.memory.jobs,
        copy.waits.scopes,
        copy.held_jobs,
        copy.orders.leaving,
        copy.needed_by,
        copy.health.drained,
        copy.jobs,
    ):
        found.clear()
    copy.memory.jobs["x"] = {"y": 1}
    copy.cluster.specs.clear()
    copy.cluster.nodes.clear()
    assert dump(state) == before
    assert snapshot(state)["cluster"] == cluster


def test_a_copy_makes_nothing_anew_that_cannot_change(tmp_path: Path) -> None:
    """A state may know ten thousand jobs that have ended, and each failure of a policy costs a copy."""
    state = busy(tmp_path).writer.state
    copy = fork(state)
    assert any(job.held for job in state.jobs.values())
    for name, job in state.jobs.items():
        assert copy.jobs[name].spec is job.spec
        assert copy.jobs[name].held is job.held
