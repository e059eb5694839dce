"""Files that are whole or not there, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.engines.local.disk import write_whole


def test_a_disk_that_takes_only_a_part_at_a_time_tears_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    write_whole(str(tmp_path / "exit.json"), '{"code": 42}', is_durable=True)
    assert (tmp_path / "exit.json").read_text() == '{"code": 42}'
