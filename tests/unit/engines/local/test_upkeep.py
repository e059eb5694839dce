"""The disk of a server that fills up: who is ended, in which order, and what is kept free."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from skep.engines.local import upkeep
from skep.engines.local.folder import Folder
from skep.engines.local.upkeep import DiskRules, RunningJob, Upkeep
from skep.jobs.request import LimitRules, Limits

MIB = 1 << 20
SIZE = 1000 * MIB


class FakeJobs:
    """Running jobs, and what was asked about them."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.over: list[str] = []
        self.asked: list[str] = []
        self.shortage = ""

    def running(self) -> list[RunningJob]:
        return [RunningJob(job_id, True) for job_id in self.now]

    def take_ended(self) -> list[str]:
        over, self.over = self.over, []
        return over

    def whose(self, job_id: str) -> tuple[str, str] | None:
        return "ann", "default"

    def is_open(self, job_id: str) -> bool:
        return True

    def end_job(self, job_id: str, reason: str, *, at_once: bool) -> None:
        self.asked.append(f"{'kill' if at_once else 'stop'} {job_id}")

    def end_writer(self, reason: str) -> None:
        self.asked.append("kill the writer")

    def set_shortage(self, reason: str) -> None:
        self.shortage = reason

    def set_full(self, full: dict[tuple[str, str], str]) -> None:
        self.full = full


class Disk:
    """As much room as the test says."""

    def __init__(self) -> None:
        self.free = SIZE
        self.files = 100_000

    def statvfs(self, path: object) -> os.statvfs_result:
        blocks = SIZE // 4096
        free = self.free // 4096
        return os.statvfs_result((4096, 4096, blocks, free, free, 100_000, self.files, self.files, 0, 255))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(upkeep.os, "statvfs", disk.statvfs)
    monkeypatch.setattr(upkeep, "KILL_S", 0.0)
    return disk


@pytest.fixture
def jobs() -> FakeJobs:
    return FakeJobs()


@pytest.fixture
def kept(tmp_path: Path, disk: Disk, jobs: FakeJobs) -> Upkeep:
    folder = Folder(tmp_path)
    folder.prepare()
    return Upkeep(folder, jobs, rules=DiskRules(reserve_bytes=50 * MIB))


def grow(kept: Upkeep, job_id: str, size: int) -> None:
    work = kept.folder.of_job(job_id, "work")
    work.mkdir(parents=True, exist_ok=True)
    with (work / "file").open("ab") as file:
        file.write(b"x" * size)


def test_the_ballast_takes_room_and_gives_it_back(kept: Upkeep, disk: Disk, jobs: FakeJobs) -> None:
    kept.look()
    assert sum(path.stat().st_blocks * 512 for path in kept.ballast.iterdir()) >= SIZE // 100
    assert len(list(kept.ballast.iterdir())) == upkeep.BALLAST_FILES
    disk.free = 40 * MIB
    kept.look()
    assert kept.ballast.exists()  # below the reserve, but not full
    assert jobs.shortage == "the disk of the server is nearly full (40 MiB left)"
    disk.free = 0
    kept.look()
    assert not kept.ballast.exists()
    kept.look()
    disk.free = 60 * MIB
    kept.look()
    assert jobs.shortage == ""
    assert not kept.ballast.exists()  # it would not fit twice
    disk.free = 200 * MIB
    kept.look()
    assert kept.ballast.exists()


def test_files_can_run_out_too(kept: Upkeep, disk: Disk, jobs: FakeJobs) -> None:
    kept.look()
    disk.files = 900
    kept.look()
    assert jobs.shortage == "the disk of the server is nearly full (900 files left)"
    assert kept.ballast.exists()
    disk.files = 10
    kept.look()
    assert not kept.ballast.exists()


def test_below_the_reserve_the_one_that_grew_most_is_killed_and_then_who_still_grows(
    kept: Upkeep, disk: Disk, jobs: FakeJobs
) -> None:
    jobs.now = ["1", "2", "3"]
    grow(kept, "3", 10)
    kept.look()
    grow(kept, "1", 2 * MIB)
    grow(kept, "2", 3 * MIB)
    disk.free = MIB
    kept.look()
    assert jobs.asked == ["kill 2"]
    jobs.now.remove("2")
    kept.look()
    assert jobs.asked == ["kill 2", "kill the writer"]  # the others do not grow in their folders
    grow(kept, "1", 2 * MIB)
    kept.look()
    assert jobs.asked[2:] == ["kill 1"]


def test_a_store_without_room_gets_the_ballast_after_the_culprit_is_killed(
    kept: Upkeep, disk: Disk, jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.look()
    assert not kept.make_room()  # there is room: the store has another problem
    jobs.now = ["1"]
    grow(kept, "1", 3 * MIB)
    disk.free = 0
    there = []
    real = jobs.end_job
    jobs.end_job = lambda *args, **more: (there.append(kept.ballast.exists()), real(*args, **more))[1]  # type: ignore[assignment]
    assert kept.make_room()
    assert (jobs.asked, there) == (["kill 1"], [True])
    assert not kept.ballast.exists()
    monkeypatch.setattr(upkeep, "HELP_S", 0.0)
    assert not kept.make_room()  # nothing is left to give


def test_a_store_without_room_tries_again_if_the_upkeep_has_just_helped(
    kept: Upkeep, disk: Disk, jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.look()
    jobs.now = ["1"]
    grow(kept, "1", 3 * MIB)
    disk.free = 0
    kept.look()  # while the store waits for the lock
    assert jobs.asked == ["kill 1"]
    assert kept.make_room()  # the job is still ending
    disk.free = SIZE
    assert kept.make_room()  # it has ended
    monkeypatch.setattr(upkeep, "HELP_S", 0.0)
    assert not kept.make_room()  # long ago


def test_a_large_tree_is_measured_in_pieces(kept: Upkeep, jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOR_RUNNING", 10)
    jobs.now = ["1", "2"]
    for job_id in jobs.now:
        for number in range(30):
            path = kept.folder.of_job(job_id, "work") / str(number)
            path.mkdir(parents=True)
    looks = 0
    while not all(job_id in kept.uses.jobs and kept.uses.jobs[job_id].bytes for job_id in jobs.now):
        kept.look()
        looks += 1
    assert 6 <= looks <= 8


def test_a_job_that_came_and_went_between_two_looks_is_counted(kept: Upkeep, jobs: FakeJobs) -> None:
    kept.look()
    grow(kept, "1", 2 * MIB)
    jobs.over = ["1"]
    kept.look()
    assert kept.uses.totals["user", "ann"] >= 2 * MIB


def test_jobs_between_two_looks_use_up_a_quota_and_those_after_them_wait(
    tmp_path: Path, disk: Disk, jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that has ended cannot be stopped any more: without this, short jobs fill the disk."""
    rules = LimitRules(Limits(disk_gib=10 / 1024))
    kept = Upkeep(Folder(tmp_path), jobs, rules)
    kept.folder.prepare()
    grow(kept, "1", 8 * MIB)
    jobs.over = ["1"]
    kept.look()
    assert jobs.full == {}
    grow(kept, "2", 8 * MIB)
    jobs.over = ["2"]
    kept.look()
    says = "take 16 MiB of the disk, and 10 MiB are allowed"
    assert jobs.full[("user", "ann")] == f"the files of all jobs of user ann {says}"
    assert jobs.asked == []
    shutil.rmtree(kept.folder.of_job("1", "work"))  # somebody makes room
    now_s = time.monotonic() + upkeep.AGAIN_FULL_S
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: now_s)
    kept.look()
    assert jobs.full == {}
