"""What would let a waiting job start now or sooner, on the store of a server that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.experiments.adviser import Adviser
from skep.service.advice import Asker, Fix, FixQuestion, Tried
from skep.service.commands import drain, hold
from skep.service.foreseen import Setup

pytestmark = pytest.mark.usefixtures("unhurried")


def asked(
    world: LiveWorld, job_id: str, within_s: float = 0.0, asker: Asker | None = None
) -> tuple[dict[str, Fix], Tried]:
    """The fixes by what they say."""
    *fixes, tried = Adviser(Setup(str(world.folder))).answer(
        FixQuestion(job_id, world.now_s, asker or Asker(), within_s)
    )
    assert isinstance(tried, Tried)
    assert not tried.error
    return {each.text: each for each in fixes if isinstance(each, Fix)}, tried


def learned(world: LiveWorld) -> None:
    """Owners have shown that they know how long their jobs take."""
    for number in range(5):
        (job_id,) = world.submit(request(f"past{number}", expect_s=1.0))
        world.settle()
        world.end(job_id)


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster="1x4")


def test_now_with_what_it_costs(world: LiveWorld) -> None:
    (first,) = world.submit(request("first", 3))
    (second,) = world.submit(request("second", 4))
    world.settle()
    world.now_s += 100.0
    found, tried = asked(world, second)
    assert tried.changes >= len(found)
    assert list(found) == [
        "ask for 1 GPU instead of 4",
        f"wait for job {first} to end",
        "add a node like n0 (4 GPUs)",
        "raise its priority from 10 to 100",
        f"stop job {first}",
    ]
    assert found[f"stop job {first}"].lost_gpu_s == pytest.approx(3 * 101.0, abs=6.0)
    raised = found["raise its priority from 10 to 100"]
    assert raised.effect == f"the job starts at once on n0; job {first} must make room"
    assert (raised.lost_gpu_s, raised.change) == (90.0, {"priority": 100})
    assert {each.when for each in found.values()} == {"now"}


def test_only_what_one_may_do(world: LiveWorld) -> None:
    (first,) = world.submit(request("first", 3))
    (second,) = world.submit(request("second", 4))
    world.settle()
    stranger = Asker(user="bob", may_change=False, is_admin=False)
    assert list(asked(world, second, asker=stranger)[0]) == [f"wait for job {first} to end"]
    blind = Asker(user="bob", may_change=False, is_admin=False, sees=("other",))
    assert asked(world, second, asker=blind)[0] == {}
    owner = Asker(user="ann", is_admin=False, priority=10)
    assert list(asked(world, second, asker=owner)[0]) == [
        "ask for 1 GPU instead of 4",
        f"wait for job {first} to end",
        f"stop job {first}",
    ]


def test_a_held_job_is_released_and_one_about_to_start_needs_nothing(world: LiveWorld) -> None:
    (first,) = world.submit(request("first", 4, hold=True))
    assert list(asked(world, first)[0]) == ["release it"]
    world.ask(hold(first, False, "ann"))
    assert asked(world, first)[1].changes == 0
    assert asked(world, "99")[1].changes == 0


def test_a_drained_node(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="2x4")
    world.ask(drain("n1", True, "ann"))
    world.submit(request("first", 4))
    (second,) = world.submit(request("second", 4))
    world.settle()
    found = asked(world, second)[0]
    assert found["use node n1 again, which is drained"].change == {"node": "n1", "state": "up"}


def test_what_does_not_help_is_given_up_and_not_named(world: LiveWorld) -> None:
    learned(world)
    world.submit(request("first", 4, expect_s=100.0), request("second", 4, expect_s=5000.0))
    (third,) = world.submit(request("third", 2, expect_s=50.0, priority=5))
    world.settle()
    found, tried = asked(world, third, 60.0, Asker(user="bob", is_admin=False, priority=10))
    assert (tried.samples, tried.cut) == (2, False)
    assert all(each.when == "now" for each in found.values())


def test_what_others_lose(world: LiveWorld) -> None:
    """It goes before a job that then waits for it."""
    learned(world)
    world.submit(request("first", 4, expect_s=100.0))
    world.submit(request("second", 4, expect_s=5000.0, priority=7))
    (third,) = world.submit(request("third", 4, expect_s=50.0, priority=5))
    world.settle()
    found, _ = asked(world, third, 60.0, Asker(user="bob", is_admin=False, priority=8))
    raised = found["raise its priority from 5 to 8"]
    assert raised.when == "sooner"
    assert raised.gain_s == pytest.approx(5000.0, abs=1.0)
    assert raised.effect == "the job starts about 83 minutes sooner (16 of 16 samples)"
    assert raised.delay_s == pytest.approx(50.0, abs=1.0)
