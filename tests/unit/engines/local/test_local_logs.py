from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.engines.local.disk import LogFile
from skep.engines.local.folder import log_files, log_tail, trim_logs


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_parts_are_kept_oldest_first_and_never_too_many(task: Path) -> None:
    log = LogFile(part_bytes=10, parts=3)
    for number in range(10):
        log.write(f"part {number}\n".encode())
    assert [path.name for path in log_files(task)] == ["log.2", "log.1", "log"]
    assert "".join(path.read_text() for path in log_files(task)) == "part 7\npart 8\npart 9\n"


def test_the_tail_goes_over_parts(task: Path) -> None:
    log = LogFile(part_bytes=8, parts=5)
    for number in range(4):
        log.write(f"part {number}\n".encode())
    assert log_tail(task, 10) == " 2\npart 3\n"
    assert log_tail(task, 1000) == "part 0\npart 1\npart 2\npart 3\n"


def test_a_log_that_is_not_there(task: Path) -> None:
    assert log_files(task) == []
    assert log_tail(task) == ""


def test_a_full_disk_costs_output_only(task: Path) -> None:
    log = LogFile(part_bytes=100, parts=2)
    (task / "log").unlink()
    (task / "log").symlink_to("/dev/full")
    log.open()
    log.write(b"lost")
    (task / "log").unlink()
    log.open()
    log.note("back")
    assert (task / "log").read_text() == "skep: back\n"


def test_bytes_that_are_no_text(task: Path) -> None:
    LogFile(100, 2).write(b"\xff\xfe ok")
    assert log_tail(task).endswith(" ok")


def test_a_log_that_is_no_file_is_not_read(task: Path) -> None:
    (task / "other").write_text("a secret of somebody else")
    (task / "log").symlink_to(task / "other")
    os.mkfifo(task / "log.1")
    (task / "log.2").mkdir()
    assert log_files(task) == []
    assert log_tail(task) == ""


def test_the_tail_of_a_sparse_log_is_short(task: Path) -> None:
    with (task / "log").open("wb") as file:
        file.truncate(1 << 40)
    assert log_tail(task) == "\0" * 8192


def test_logs_of_earlier_starts_are_kept_up_to_a_size(tmp_path: Path) -> None:
    for launch in range(1, 6):
        for name in ("w-0", "w-1"):
            (tmp_path / str(launch) / name).mkdir(parents=True)
            (tmp_path / str(launch) / name / "log").write_bytes(b"x" * 400)
    (tmp_path / "4" / "w-0" / "log.1").write_bytes(b"x" * 300)
    trim_logs(tmp_path, 5, 1000)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/log*"))
    assert left == ["3/w-1/log", "4/w-0/log", "4/w-0/log.1", "4/w-1/log", "5/w-0/log", "5/w-1/log"]
