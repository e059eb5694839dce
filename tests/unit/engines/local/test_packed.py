"""Ended jobs in one small file: nothing of them is lost, whatever happens meanwhile and whatever the jobs have done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.engines.local import packed
from skep.engines.local.folder import Folder
from skep.engines.local.walk import measured

FILES = {
    "1/launch.json": b"{}",
    "1/w-0/task.json": b"secret",
    "1/w-0/exit.json": b"0",
    "1/w-0/log": b"first\n",
    "2/launch.json": b"{}",
    "2/w-0/task.json": b"secret",
    "2/w-0/exit.json": b"1",
    "2/w-0/log.1": b"old\n",
    "2/w-0/log": b"new\n",
    "2/w-0/log.dropped": b"5",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(packed, "READ_S", 0.0)
    folder = Folder(tmp_path / "data")
    folder.prepare()
    make(folder.jobs / "5")
    return folder


def make(job: Path, files: dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        path = job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for task in job.glob("*/*-*"):
        os.mkfifo(task / "control")
        for name in ("lock", "pid", "main"):
            (task / name).touch()
        (task / "own").mkdir()
    for name in ("checkpoint", "work"):
        (job / name).mkdir()


def content(job: Path) -> dict[str, bytes]:
    return {str(path.relative_to(job)): path.read_bytes() for path in job.rglob("*") if path.is_file()}


def test_there_and_back(folder: Folder) -> None:
    folder.pack("5")
    assert os.listdir(folder.jobs) == ["5.packed"]
    assert (folder.jobs / "5.packed").stat().st_mode & 0o777 == 0o600
    assert folder.last_job() == 5
    assert folder.all_jobs() == ["5"]
    assert folder.launches("5") == [1, 2]
    assert content(folder.job("5")) == FILES
    folder.pack("5")
    assert os.listdir(folder.jobs) == ["5.packed"]
    folder.put_aside("5")
    folder.remove_aside()
    assert os.listdir(folder.jobs) == []


def test_it_takes_a_block(folder: Folder) -> None:
    before = measured(folder.jobs)
    folder.pack("5")
    assert measured(folder.jobs) < before / 10


def test_what_the_job_has_left_stays_in_its_place(folder: Folder) -> None:
    job = folder.job("5")
    (job / "checkpoint" / "best.pt").write_bytes(b"weights")
    (job / "2" / "w-0" / "own" / "progress.json").write_bytes(b"{}")
    (job / "2" / "w-0" / "core").write_bytes(b"core")
    left = {"checkpoint/best.pt": b"weights", "2/w-0/own/progress.json": b"{}", "2/w-0/core": b"core"}
    folder.pack("5")
    assert content(job) == left
    assert folder.launches("5") == [1, 2]
    assert content(job) == FILES | left


def test_under_other_accounts_empty_folders_go_and_others_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data", tmp_path / "own")
    folder.prepare()
    for job in ("5", "6"):
        make(folder.jobs / job)
        for name in ("checkpoint", "work", "1/w-0/own", "2/w-0/own"):
            (folder.own / job / name).mkdir(parents=True)
    (folder.own / "6" / "work" / "result").write_text("42")
    (folder.own / "6" / "2" / "w-0" / "own" / "link").symlink_to(tmp_path)
    folder.pack("5")
    folder.pack("6")
    assert os.listdir(folder.own) == ["6"]
    assert (folder.own / "6" / "work" / "result").read_text() == "42"
    assert sorted(os.listdir(folder.own / "6")) == ["2", "work"]


@pytest.mark.parametrize("at", range(40))
def test_a_crash_at_any_step_loses_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Every call that changes the disk is the last one in turn; then another server finds what is there."""
    calls = 0

    def dying(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*args: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls > at:
                raise KeyboardInterrupt
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir", "fsync", "rename"):
            patch.setattr(os, name, dying(name))
        with contextlib.suppress(KeyboardInterrupt):
            folder.pack("5")
    after = Folder(folder.root)
    assert all(after.is_over(path) for path in after.all_launches())  # else its exit would be written again
    assert after.launches("5") == [1, 2]
    assert content(after.job("5")).items() >= FILES.items()
    after.pack("5")
    assert os.listdir(folder.jobs) == ["5.packed"]


def test_a_job_that_has_not_ended_is_left_alone(folder: Folder) -> None:
    (folder.job("5") / "2" / "w-0" / "exit.json").unlink()
    before = content(folder.job("5"))
    folder.pack("5")
    assert content(folder.job("5")) == before


def test_a_job_that_is_read_is_left_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "READ_S", 600.0)
    folder.packed.note_read("5")
    folder.pack("5")
    assert content(folder.job("5")).items() >= FILES.items()


def test_large_logs_are_left_alone(folder: Folder) -> None:
    (folder.job("5") / "1" / "w-0" / "log").write_bytes(b"x" * (packed.SIZE_MAX + 1))
    folder.pack("5")
    assert len(content(folder.job("5"))["1/w-0/log"]) == packed.SIZE_MAX + 1


def test_a_job_that_was_started_again_keeps_both(folder: Folder) -> None:
    """After a restored backup."""
    folder.pack("5")
    make(folder.job("5"), {"3/launch.json": b"{}", "3/w-0/exit.json": b"0", "3/w-0/log": b"third\n"})
    folder.pack("5")
    assert folder.launches("5") == [1, 2, 3]
    assert content(folder.job("5")).items() >= (FILES | {"3/w-0/log": b"third\n"}).items()


def link_for_job(job: Path, other: Path) -> None:
    job.rename(job.with_name("moved"))
    job.symlink_to(other)


def link_for_launch(job: Path, other: Path) -> None:
    (job / "2").rename(job / "moved")
    (job / "2").symlink_to(other / "2")


def link_for_task(job: Path, other: Path) -> None:
    (job / "2" / "w-0").rename(job / "2" / "moved")
    (job / "2" / "w-0").symlink_to(other / "2" / "w-0")


def link_for_log(job: Path, other: Path) -> None:
    (job / "2" / "w-0" / "log").unlink()
    (job / "2" / "w-0" / "log").symlink_to(other / "2" / "w-0" / "log")


def fifo_for_log(job: Path, other: Path) -> None:
    (job / "2" / "w-0" / "log").unlink()
    os.mkfifo(job / "2" / "w-0" / "log")


def link_for_own(job: Path, other: Path) -> None:
    (job / "work").rmdir()
    (job / "work").symlink_to(other)


@pytest.mark.parametrize(
    "hurt", [link_for_job, link_for_launch, link_for_task, link_for_log, fifo_for_log, link_for_own]
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_nothing_leads_out_of_the_folder(folder: Folder, hurt: Callable[[Path, Path], None], is_packed: bool) -> None:
    """Neither when it is packed, nor when it is unpacked again."""
    other = folder.jobs / "7"
    make(other)
    (other / "2" / "w-0" / "task.json").unlink()  # what an unpacked job 5 could write here
    before = content(other)
    if is_packed:
        folder.pack("5")
        make(folder.job("5"))
    hurt(folder.job("5"), other)
    for _ in range(2):
        folder.pack("5")
        assert content(other) == before
        with contextlib.suppress(OSError):
            folder.launches("5")
        assert content(other) == before


def test_a_pack_that_is_not_ours_writes_nothing_outside(folder: Folder, tmp_path: Path) -> None:
    names = ["../../../out", "1/../../out", "/out", "1//log", "1/w-0/../../out", "x/launch.json", "1/w-0/evil", "1/w-0"]
    (folder.jobs / "8.packed").write_bytes(packed.encode(dict.fromkeys(names, b"x")))
    (folder.jobs / "9.packed").write_bytes(packed.encode({"1/launch.json": b"\0" * (64 << 20)}))
    (folder.jobs / "10.packed").write_bytes(b"no pack")
    for job in ("8", "9", "10"):
        folder.launches(job)
        assert content(folder.job(job)) == {}
    assert not list(tmp_path.rglob("out"))
