"""A pending job asks for something else, and keeps its place."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from live_world import LiveWorld, request

from skep.core.errors import Conflict
from skep.core.record import decode
from skep.jobs.alter import Alteration
from skep.jobs.request import LimitRules, Limits, Request
from skep.service.alter import alter
from skep.service.commands import reprioritise
from skep.service.recover import recompute

VCS = "nodes: [{count: 2, name: n, gpus: 4}]\nvcs: {a: 1 nodes, b: 1 nodes}\n"


def altered(world: LiveWorld, job_id: str, **wanted: object) -> None:
    world.ask(alter(job_id, Alteration(**wanted), "ann"))  # type: ignore[arg-type]
    world.settle()


def test_it_starts_with_fewer_gpus(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="1x4")
    world.submit(request("first", 2))
    (second,) = world.submit(request("second", 4))
    world.settle()
    assert world.state(second) == "pending"
    altered(world, second, gpus=2)
    assert world.state(second) == "running"
    kept = world.store.job(int(second))
    assert kept is not None
    assert kept[0].gpus == 2
    assert msgspec.json.decode(kept[1], type=Request).tasks["task"].count == 2
    assert world.store.notices(0, second, 10)[1].text == "GPUs 4 to 2"
    world.crash()
    assert world.state(second) == "running"
    assert world.writer.book.records[second].request.gpus == 2


def test_it_keeps_its_place_and_its_priority(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="1x4")
    (first,) = world.submit(request("first", 4))
    (second,) = world.submit(request("second", 4))
    (third,) = world.submit(request("third", 3))
    world.ask(reprioritise(second, 20, "ann"))
    world.ask(reprioritise(third, 20, "ann"))
    altered(world, second, gpus=3)
    assert world.writer.state.jobs[second].spec.priority == 20
    world.end(first)
    assert [world.state(each) for each in (second, third)] == ["running", "pending"]


def test_a_job_of_another_vc(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    world.submit(request("first", 4, vc="a"), request("second", 2, vc="b"))
    (third,) = world.submit(request("third", 4, vc="a"))
    world.settle()
    with pytest.raises(Conflict, match="no virtual cluster 'c'"):
        altered(world, third, vc="c")
    altered(world, third, vc="b", gpus=2)
    assert world.state(third) == "running"
    assert world.writer.state.jobs[third].spec.vc == "b"
    kept = world.store.job(int(third))
    assert kept is not None
    assert kept[0].vc == "b"


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    limits = LimitRules(Limits(tasks=6))
    world = LiveWorld(tmp_path, cluster="2x4", limits=limits)
    (first,) = world.submit(request("first", 4))
    (second,) = world.submit(request("second", 2, needs=("first",)))
    world.settle()
    with pytest.raises(Conflict, match="cannot be altered: it is running"):
        altered(world, first, gpus=2)
    with pytest.raises(Conflict, match="may have 6 tasks"):
        altered(world, second, gpus=3)
    with pytest.raises(Conflict, match="can never run here"):
        altered(world, second, gpu_type="none")
    assert world.writer.book.records[second].request.gpus == 2
    assert world.writer.limits.users["ann"].tasks == 6
    altered(world, second, gpus=2)  # nothing to do
    altered(world, second, gpus=1)
    assert world.writer.limits.users["ann"].tasks == 5
    assert world.state(second) == "pending"  # it still needs the first
    world.end(first)
    assert world.state(second) == "running"


@pytest.mark.parametrize("policy", ["fifo", "tiresias-l", "srsf", "gandiva", "themis", "drf", "yarn-cs"])
def test_the_log_says_the_same_again(tmp_path: Path, policy: str) -> None:
    world = LiveWorld(tmp_path, cluster="2x4", policy=policy)
    jobs = world.submit(*(request(f"j{number}", 2 + number, expect_s=100.0) for number in range(5)))
    world.settle()
    pending = [each for each in jobs if world.state(each) == "pending"]
    altered(world, pending[-1], gpus=1)
    rows = world.store.db.execute("SELECT entry FROM log ORDER BY seq").fetchall()
    assert recompute([decode(data) for (data,) in rows]) == []
