"""`kill -9` of a real server under load, twenty times."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.crash import run_trial


@pytest.mark.slow
def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    seen = run_trial(tmp_path, kills=20, seed=1)
    assert seen["jobs"] > 20
