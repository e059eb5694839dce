"""The curve of a task, which the task itself writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.engines.local import job_files
from skep.engines.local.job_files import read_lines


def test_what_a_job_puts_in_its_place_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_lines(path) == ([], False)
    os.mkfifo(path)
    assert read_lines(path) == ([], False)
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert read_lines(path) == ([], False)


def test_a_huge_file_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "METRICS_MAX", 100)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"line {number}\n" for number in range(1000)))
    lines, is_cut = read_lines(path)
    assert is_cut
    assert lines[0].startswith(b"line ")
    assert lines[-2:] == [b"line 999", b""]
