"""The files of real jobs: packed when they have ended, measured while they run, under any account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_world import World, reachable_folder, until

from skep.core.reports import Exited, Overrun, Started
from skep.engines.local import packed, upkeep
from skep.engines.local.accounts import Accounts, missing_rights
from skep.engines.local.walk import measured
from skep.jobs.request import LimitRules, Limits, Request, TaskRole

ACCOUNTS = [
    "server",
    pytest.param(
        "separate", marks=pytest.mark.skipif(bool(missing_rights()), reason="accounts cannot be changed here")
    ),
]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(upkeep, "LOOK_S", 0.1)
    monkeypatch.setattr(upkeep, "PACK_S", 0.0)
    monkeypatch.setattr(packed, "READ_S", 0.0)
    with reachable_folder() as folder:
        yield folder


def world(place: Path, run_as: str, open_jobs: set[str], *commands: str, **limits: float) -> World:
    data = place / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    requests = {
        str(number): Request("job", {"main": TaskRole(command=command)}, user="ann")
        for number, command in enumerate(commands, 1)
    }
    rules = LimitRules(Limits(**limits))  # type: ignore[arg-type]
    return World(
        data, requests, accounts=Accounts(run_as, data), limits=rules, is_open=lambda job_id: job_id in open_jobs
    )


@pytest.mark.parametrize("run_as", ACCOUNTS)
def test_an_ended_job_is_packed_and_read_as_before(place: Path, run_as: str) -> None:
    open_jobs = {"1", "2", "3"}
    with world(place, run_as, open_jobs, "echo out; exit 3", "echo kept > result", "sleep 600") as one:
        one.adopt(set())
        folder = one.engine.folder
        one.run("1")
        one.run("2")
        one.start("3")
        assert folder.has_folder("1")  # it may be started again
        before = measured(folder.jobs, folder.own)
        open_jobs -= {"1", "2"}
        one.adopt({("3", 1)})  # a server that starts finds them
        one.engine.upkeep._again_at_s = 0.0
        assert until(lambda: folder.packed.has("1") and folder.packed.has("2") and not folder.has_folder("1"))
        assert folder.has_folder("3")
        assert until(lambda: not (folder.own / "1").exists())  # removed after the pack is durable
        assert (folder.of_job("2", "work") / "result").read_text() == "kept\n"
        assert measured(folder.jobs, folder.own) < before
        assert one.log("1") == "out\n"
        assert one.engine.tasks("1")[0].exit_code == 3
        assert one.engine.environment("1").env["SKEP_JOB_ID"] == "1"
        one.engine.upkeep._again_at_s = 0.0  # an hour later
        assert until(lambda: not folder.has_folder("1"))


@pytest.mark.parametrize("run_as", ACCOUNTS)
@pytest.mark.parametrize(
    "command",
    ["dd if=/dev/zero of=fill bs=1M count=40", "yes | head -c 40000000", "seq 40000 | split -l 1 -a 8 - part"],
    ids=["file", "log", "files"],
)
def test_a_job_beyond_its_quota_is_reported_once(place: Path, run_as: str, command: str) -> None:
    with world(place, run_as, {"1", "2"}, f"{command}; sleep 600", "sleep 600", job_gib=0.03) as one:
        one.adopt(set())
        one.start("2")
        one.start("1")
        reason = one.wait(Overrun, "1").reason
        assert reason.endswith("MiB of the disk, and 30.7 MiB are allowed")
        one.engine.end_job("1", reason, at_once=True)
        ended = one.wait(Exited, "1")
        assert (ended.was_stopped, ended.cause) == (True, "full-disk")
        assert len(one.of(Overrun, "1")) == 2  # the one that was asked for here
        assert not one.of(Overrun, "2")
        assert len(one.of(Started, "2")) == 1


@pytest.mark.parametrize("what", ["a deleted file", "a file elsewhere"])
def test_a_job_that_fills_the_disk_elsewhere_is_found_by_what_it_writes(place: Path, what: str) -> None:
    fill = f"exec 3> {place}/fill; " + ("rm fill; " if what == "a deleted file" else "")
    slowly = "while :; do dd if=/dev/zero bs=1M count=4 status=none >&3; sleep 0.05; done"
    with world(place, "server", {"1", "2"}, f"cd {place}; {fill}{slowly}", "sleep 600") as one:
        one.adopt(set())
        one.start("1")
        one.start("2")
        one.engine.end_writer("the disk is nearly full, and this job writes most")
        assert one.wait(Exited, "1").cause == "full-disk"
        assert one.wait(Overrun, "1").reason.endswith("writes most")
        assert not one.of(Overrun, "2")
