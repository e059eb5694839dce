"""Files that are whole or not there, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.engines.local import disk
from skep.engines.local.disk import write_whole


def test_a_disk_that_takes_only_a_part_at_a_time_tears_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    write_whole(str(tmp_path / "exit.json"), '{"code": 42}', is_durable=True)
    assert (tmp_path / "exit.json").read_text() == '{"code": 42}'


def test_output_without_end_is_slowed_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    slept: list[float] = []
    monkeypatch.setattr(disk.time, "sleep", slept.append)
    log = disk.LogFile(1 << 20, 5)
    source = os.open("/dev/zero", os.O_RDONLY)
    for _ in range(disk.RATE_MAX // (1 << 16)):
        log.pump(source)
    os.close(source)
    assert len(slept) in (9, 10)
    assert sum(path.stat().st_size for path in tmp_path.iterdir() if not path.name.startswith("log.dropped")) <= 5 << 20


def test_a_file_is_written_whatever_is_in_its_place(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)):
        for name in ("exit.json", "exit.json.new"):
            make(tmp_path / name)
        disk.write_whole(str(tmp_path / "exit.json"), "{}")
        assert (tmp_path / "exit.json").read_text() == "{}"
        (tmp_path / "exit.json").unlink()
