"""The same as with torch for a numpy script of one process: quick enough for many interruptions."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest
from interrupted import EXAMPLES, Training, interrupt

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")

SCRIPT = EXAMPLES / "plain_numpy.py"


def test_stops_lose_no_step_and_change_no_bit(tmp_path: Path) -> None:
    whole = Training(tmp_path / "whole", SCRIPT, "--steps", "300")
    whole.finish()
    broken = Training(tmp_path / "broken", SCRIPT, "--steps", "300", "--sleep", "0.005")
    assert interrupt(broken, signal.SIGTERM, times=6, seed=1) == 6
    broken.finish()
    assert broken.curve() == whole.curve()
    assert broken.lines() == whole.lines()


@pytest.mark.slow
def test_kills_go_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    whole = Training(tmp_path / "whole", SCRIPT, "--steps", "900")
    whole.finish()
    broken = Training(tmp_path / "broken", SCRIPT, "--steps", "900", "--sleep", "0.003", "--every", "0")
    assert interrupt(broken, signal.SIGKILL, times=12, seed=2, most=25) == 12
    broken.finish()
    assert broken.curve() == whole.curve()
    assert broken.lines() <= whole.lines() + 12, "a kill costs the step under way and no other"
