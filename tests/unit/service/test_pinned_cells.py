"""Pinned cells live: who asks for one runs there, and nobody else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld, request
from tests.support import take_trigger
from tests.support.shared_invariants import check_shared

from skep.core.errors import Conflict, InputError
from skep.core.memory import OWNED, Owned
from skep.policies.shared.planner import VcPlanner
from skep.service import commands
from skep.service.present import vc_books

LAB = "nodes: [{count: 3, name: n, gpus: 4}]\nvcs: {red: {cells: 1 node, pinned: [n2]}, blue: 1 node}\n"


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster=LAB)


def nodes(world: LiveWorld, job_id: str) -> list[str]:
    held = world.writer.state.jobs[job_id].held
    return [] if held is None else [world.writer.state.cluster.nodes[node].name for node in held.nodes()]


def settle(world: LiveWorld) -> None:
    world.settle()
    planner: Any = world.writer.planning.planner
    assert world.writer.planning.scheduler is not None
    check_shared(world.writer.planning.scheduler.state, planner)


def test_who_asks_runs_in_the_pinned_cell_and_nobody_else_does(world: LiveWorld) -> None:
    others = world.submit(
        *(request(gpus=4, vc=vc) for vc in ("red", "red", "blue")), request(gpus=4, priority=-1, vc="blue")
    )
    settle(world)
    assert "n2" not in [name for job in others for name in nodes(world, job)]
    first, second = world.submit(*(request(gpus=4, vc="red", pinned="n2") for _ in range(2)))
    settle(world)
    assert (nodes(world, first), nodes(world, second)) == (["n2"], [])
    for job in others[:2]:
        if world.state(job) == "running":
            world.end(job)
    why = world.writer.planning.explain({second: None})[second]
    assert why.reason == f"in pinned cell n2 of VC red: asks for 4 GPUs, 0 are free; job {first} holds what it needs"
    assert nodes(world, second) == []  # its cell is full, whatever else is idle
    world.end(first)
    assert nodes(world, second) == ["n2"]


def test_a_server_that_starts_again_knows_who_is_in_the_pinned_cell(world: LiveWorld) -> None:
    job, pending = world.submit(*(request(gpus=4, vc="red", pinned="n2") for _ in range(2)))
    settle(world)
    world.crash()
    settle(world)
    assert (nodes(world, job), nodes(world, pending)) == (["n2"], [])
    world.end(job)
    assert nodes(world, pending) == ["n2"]


def test_who_is_there_is_found_again_on_another_cluster_which_must_have_the_cell(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4, vc="red", pinned="n2"))
    settle(world)
    world.ask(commands.apply_cluster(LAB.replace("count: 3", "count: 4"), "more", "root"))
    settle(world)
    planner: Any = world.writer.planning.planner
    assert (nodes(world, job), planner.loans.borrowers) == (["n2"], {})
    with pytest.raises(Conflict) as raised:
        world.ask(commands.apply_cluster(LAB.replace("[n2]", "[n1]"), "other", "root"))
    assert str(raised.value) == f"job {job} asks for pinned cell n2, which VC red of the new cluster lacks"


def test_who_runs_where_a_cell_becomes_pinned_gives_way_to_those_who_ask_for_it(tmp_path: Path) -> None:
    plain = "nodes: [{name: n, gpus: 4}]\nvcs: {red: 1 node}\n"
    pinned = plain.replace("red: 1 node", "red: {pinned: [n]}")
    world = LiveWorld(tmp_path, cluster=plain)
    (before,) = world.submit(request(gpus=4, vc="red"))
    world.settle()
    world.ask(commands.apply_cluster(pinned, "pinned", "root"))
    (asks,) = world.submit(request(gpus=4, vc="red", pinned="n"))
    world.settle()
    assert (nodes(world, before), nodes(world, asks)) == ([], ["n"])


def test_a_job_in_a_pinned_cell_does_not_leave_it_when_its_priority_falls(world: LiveWorld) -> None:
    job, other = world.submit(*(request(gpus=4, vc="red", pinned="n2") for _ in range(2)))
    settle(world)
    world.ask(commands.reprioritise(other, -1, "root"))
    settle(world)
    assert nodes(world, other) == []
    world.end(job)
    assert nodes(world, other) == ["n2"]


def test_a_job_of_a_time_when_all_of_a_vc_used_its_pinned_cells_borrows_what_it_has(world: LiveWorld) -> None:
    (job_id,) = world.submit(request(gpus=4, vc="red"))
    settle(world)
    assert world.writer.planning.scheduler is not None
    state, planner = world.writer.planning.scheduler.state, world.writer.planning.planner
    assert isinstance(planner, VcPlanner)
    owned = OWNED.get(state.memory, job_id)
    assert owned is not None
    state.memory.jobs[job_id][OWNED.name] = Owned(owned.allocation.renumbered({0: 1}), owned.gpus)
    planner.attach(state, state.memory)
    assert list(planner.loans.borrowers.values()) == [state.jobs[job_id]]
    plan = planner.plan(state, state.memory, take_trigger(state))
    assert not planner.loans.borrowers, "its VC has room, and it owns what it has"
    assert [change.value for change in plan.memory if change.slot == OWNED.name][-1] == owned


@pytest.mark.parametrize(
    ("asked", "error", "hint"),
    [
        ({"vc": "red", "pinned": "n3"}, "job job: VC red has no pinned cell 'n3'", "did you mean n2?"),
        ({"vc": "red", "pinned": "elsewhere"}, "job job: VC red has no pinned cell 'elsewhere'", "it has n2"),
        ({"vc": "blue", "pinned": "n2"}, "job job: VC blue has no pinned cell 'n2'", "it has none"),
        (
            {"vc": "red", "pinned": "n2", "gpus": 5},
            "job job can never run here: asks for 5 GPUs, pinned cell n2 of VC red has 4",
            "`skep cluster` shows what there is",
        ),
        (
            {"vc": "red", "gpus": 5},
            "job job can never run here: asks for 5 GPUs, VC red has 4",
            "`skep cluster` shows what there is",
        ),
    ],
)
def test_a_cell_that_is_not_there_is_one_line_at_submission(
    world: LiveWorld, asked: dict[str, Any], error: str, hint: str
) -> None:
    with pytest.raises(InputError) as raised:
        world.submit(request(**asked))
    assert (str(raised.value), raised.value.hint) == (error, hint)
    assert not world.writer.state.jobs


def test_opportunistic_work_that_fits_only_with_pinned_cells_is_refused(world: LiveWorld) -> None:
    with pytest.raises(InputError, match=r"asks for 12 GPUs.*\(pinned cells are not lent\)$"):
        world.submit(request(gpus=12, vc="red", priority=-1))


def test_a_cluster_without_virtual_clusters_has_no_pinned_cells(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="VC default has no pinned cell 'n0'"):
        LiveWorld(tmp_path).submit(request(pinned="n0"))


def test_a_vc_has_its_pinned_cells_too(world: LiveWorld) -> None:
    assert {name: book.gpus for name, book in vc_books(world.writer).items()} == {"red": 8, "blue": 4}
