"""In the live world a start or a move takes its time, and who comes meanwhile is not forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited
from skep.jobs.request import Elastic


@pytest.mark.parametrize(
    ("policy", "first", "second"),
    [
        ("fifo", {}, {"priority": 100}),
        ("srtf", {"expect_s": 1000.0}, {"expect_s": 10.0}),
        ("afs-l", {"expect_s": 1000.0}, {"expect_s": 10.0}),
    ],
)
def test_who_goes_first_and_comes_while_another_is_launched_still_goes_first(
    tmp_path: Path, policy: str, first: dict[str, float], second: dict[str, float]
) -> None:
    world = LiveWorld(tmp_path, "1x2", policy)
    (slow,) = world.submit(request(gpus=2, **first))
    (quick,) = world.submit(request(gpus=2, **second))
    world.settle()
    assert (world.state(slow), world.state(quick)) == ("pending", "running")


def test_what_becomes_free_while_a_job_shrinks_is_given_to_it_afterwards(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, "1x6", "afs-l:restart=1")
    (short,) = world.submit(request(gpus=2, expect_s=300.0))
    (elastic,) = world.submit(request(gpus=4, expect_s=1000.0, elastic=Elastic("task", 2, 6)))
    world.settle()
    world.submit(request(gpus=2, expect_s=400.0))
    (move,) = world.puppet.asked
    world.tell(Exited(short, 1, 0))
    assert world.puppet.asked == [move]
    world.settle()
    assert world.writer.state.jobs[elastic].held_gpus == 4


def test_an_elastic_job_is_as_fast_as_it_is_large(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, "1x4", "afs-l:restart=1")
    (elastic,) = world.submit(request(gpus=2, expect_s=1000.0, elastic=Elastic("task", 1, 4)))
    world.settle()
    job = world.writer.state.jobs[elastic]
    assert (job.held_gpus, job.rate) == (4, 2.0)
    world.submit(request(gpus=3, expect_s=10.0))
    world.settle()
    assert (job.held_gpus, job.rate) == (1, 0.5)
