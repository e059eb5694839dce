"""What a submission would do, on the store of a server that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.experiments.adviser import Adviser
from skep.jobs.core import groups_of
from skep.jobs.request import Request
from skep.service.advice import Asker, DelayedJob, Fix, Planned, PlanQuestion, Tried
from skep.service.commands import check_all
from skep.service.foreseen import Likely, Setup
from skep.service.sight import EVERYTHING
from skep.service.turn import Turn

pytestmark = pytest.mark.usefixtures("unhurried")


def planned(world: LiveWorld, *requests: Request, asker: Asker | None = None) -> tuple[Planned, list[Fix]]:
    with world.writer.lock:
        specs = check_all(world.writer, Turn(world.now_s), list(requests), EVERYTHING)
    groups = [group for each, own in zip(requests, specs, strict=True) for group in groups_of(each, own[0].id[:1])]
    question = PlanQuestion(list(requests), specs, groups, world.now_s, asker or Asker(), 60.0)
    found, *fixes, tried = Adviser(Setup(str(world.folder))).answer(question)
    assert isinstance(tried, Tried)
    assert not tried.error
    assert isinstance(found, Planned)
    assert found.samples == 16
    return found, [each for each in fixes if isinstance(each, Fix)]


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    """Owners have shown that they know how long their jobs take."""
    world = LiveWorld(tmp_path, cluster="1x4")
    for number in range(5):
        (job_id,) = world.submit(request(f"past{number}", expect_s=1.0))
        world.settle()
        world.end(job_id)
    return world


def exactly(at_s: float) -> Likely:
    return Likely(at_s, at_s, at_s)


def test_a_job_that_starts_now(world: LiveWorld) -> None:
    found, fixes = planned(world, request("new", 2, expect_s=1800.0))
    (job,) = found.jobs
    assert (job.name, job.gpus, job.nodes, job.lengths) == ("new", 2, ("n0",), "owner")
    assert (job.start, job.end) == (exactly(world.now_s), exactly(world.now_s + 1800.0))
    assert job.gpu_hours == 1.0
    assert (found.preempts, found.delays, found.delayed, fixes) == ([], [], 0, [])
    assert not world.writer.book.records  # nothing was submitted


def test_a_job_that_waits_is_as_forecast_and_has_alternatives(world: LiveWorld) -> None:
    world.submit(request("first", 3, expect_s=100.0))
    world.settle()
    begun_s = world.now_s
    found, fixes = planned(world, request("new", 4, expect_s=50.0))
    (job,) = found.jobs
    assert job.nodes == ()
    assert (job.start, job.end) == (exactly(world.now_s + 100.0), exactly(world.now_s + 150.0))
    assert [each.text for each in fixes] == ["ask for 1 GPU instead of 4", "raise its priority from 10 to 100"]
    assert {each.command for each in fixes} == {""}
    world.submit(request("new", 4, expect_s=50.0))
    world.settle()
    again = planned(world, request("after", 4, expect_s=50.0))[0]
    assert again.jobs[0].start == exactly(begun_s + 150.0)


def test_who_would_be_preempted_and_delayed(world: LiveWorld) -> None:
    (first,) = world.submit(request("first", 4, expect_s=100.0))
    (second,) = world.submit(request("second", 4, expect_s=100.0))
    world.settle()
    urgent = request("urgent", 4, expect_s=1000.0, priority=100)
    found = planned(world, urgent)[0]
    assert found.preempts == [first]
    assert {each.job for each in found.delays} == {first, second}
    assert found.delays[0] == DelayedJob(second, pytest.approx(1030.0, abs=5.0))
    assert found.delayed == 2
    hidden = planned(world, urgent, asker=Asker(sees=("elsewhere",)))[0]
    assert (hidden.preempts, hidden.preempts_others, hidden.delays, hidden.delayed) == ([], 1, [], 2)


def test_several_jobs_and_one_that_is_held(world: LiveWorld) -> None:
    found, fixes = planned(world, request("a", 4, expect_s=10.0), request("b", 4, expect_s=10.0, hold=True))
    assert [(job.name, job.start is not None) for job in found.jobs] == [("a", True), ("b", False)]
    assert fixes == []
