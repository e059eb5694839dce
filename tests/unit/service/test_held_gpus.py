"""Attempts remember which GPUs they hold."""

from __future__ import annotations

from pathlib import Path

from live_world import LiveWorld, request

from skep.jobs.request import Request, TaskRole
from skep.service.store import Held


def test_an_attempt_knows_its_gpus_until_its_end_and_through_a_crash(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    world.submit(request("wide", gpus=6), request("small", gpus=1))
    world.settle()
    wide, small = (world.store.attempts(seq)[0].held for seq in (1, 2))
    assert [(each.node, each.gpus) for each in wide] == [("n0", (0, 1, 2, 3)), ("n1", (0, 1))]
    assert small == (Held("n1", (2,), 1000),)
    world.crash()
    world.end("1")
    ended = world.store.attempts(1)[0]
    assert (ended.outcome, ended.held) == ("succeeded", wide)


def test_a_share_of_a_gpu_says_how_much(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    role = TaskRole(gpus=1, gpu_milli=250, command="true")
    world.submit(Request(name="share", tasks={"task": role}, user="ann"))
    assert world.store.attempts(1)[0].held == (Held("n0", (0,), 250),)


def test_a_job_without_gpus_holds_none(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    world.submit(Request(name="cpu", tasks={"task": TaskRole(cpu=1.0, command="true")}, user="ann"))
    world.settle()
    assert world.store.attempts(1)[0].held == ()
