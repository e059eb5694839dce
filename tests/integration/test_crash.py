"""Faults of all kinds on a real server under load."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.crash import run_trial

pytestmark = pytest.mark.slow


def test_a_server_that_is_killed_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    seen = run_trial(tmp_path, 10, 1, ["server", "server-at-start"])
    assert seen.jobs > 10


def test_whatever_is_killed_nothing_is_lost_or_stuck(tmp_path: Path) -> None:
    seen = run_trial(tmp_path, 20, 2)
    assert seen.jobs > 20
