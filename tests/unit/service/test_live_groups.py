"""Groups of jobs on a running server: named ones, those of a job's own tasks, and both at once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from live_world import LiveWorld, request

from skep.jobs.request import Completion, OfGroup, Request, TaskRole

FIRST = OfGroup(kind="sweep", ends_when="first-succeeded")


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def trial(name: str, **more: object) -> Request:
    return msgspec.structs.replace(request(name), group="tune", of_group=FIRST, **more)


def reason(world: LiveWorld, job: str) -> str:
    found = world.store.job(int(job))
    assert found is not None
    return found[0].reason


def test_the_first_trial_that_succeeds_stops_the_others_and_they_say_why(world: LiveWorld) -> None:
    jobs = world.submit(*(trial(f"t{number}") for number in range(3)))
    (other,) = world.submit(request("other"))
    world.settle()
    world.end(jobs[0])
    world.settle()
    assert [world.state(job) for job in jobs] == ["succeeded", "stopped", "stopped"]
    assert world.state(other) == "running"
    assert {reason(world, job) for job in jobs[1:]} == {"group tune ended: 1 of its members succeeded"}
    told = [each for each in world.store.notices(0, None, 100) if each.kind == "stop-requested"]
    assert [each.job for each in told] == jobs[1:]


def test_the_same_name_of_another_user_is_another_group(world: LiveWorld) -> None:
    (mine,) = world.submit(trial("mine", user="ann"))
    (theirs,) = world.submit(trial("theirs", user="bob"))
    world.settle()
    world.end(mine)
    assert world.state(theirs) == "running"


def test_a_group_survives_a_crash(world: LiveWorld) -> None:
    jobs = world.submit(trial("a"), trial("b"))
    world.settle()
    world.crash()
    world.settle()
    world.end(jobs[1])
    world.settle()
    assert world.state(jobs[0]) == "stopped"


def test_a_job_whose_tasks_start_one_by_one_is_one_member(world: LiveWorld) -> None:
    role = TaskRole(count=2, gpus=1, command="true", completion=Completion(min_succeeded=2))
    (many,) = world.submit(trial("many", gang=False, tasks={"w": role}))
    (one,) = world.submit(trial("one"))
    world.settle()
    world.end(f"{many}/w-0")
    assert world.state(one) == "running"
    world.end(f"{many}/w-1")
    world.settle()
    assert (world.state(many), world.state(one)) == ("succeeded", "stopped")
    assert world.store.owner(f"{many}/w-1") == (many, "w-1")
    assert world.store.owner(one) == (one, "")
