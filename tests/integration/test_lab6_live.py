"""The five experiments of Lab 6 with real processes, and that they can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LAB = Path(__file__).parents[2] / "examples" / "lab6"


def play(*command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=600)
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []
    return ran


def test_everything_comes_as_the_lab_says(tmp_path: Path) -> None:
    ran = play(str(LAB / "live.py"), tmp_path=tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert [line[:2] for line in ran.stdout.splitlines() if line[0] != " "] == ["1.", "2.", "3.", "4.", "5.", "ev"]
    assert "a gang of four is refused" in ran.stdout
    assert "single: 1 GPU in VC default\n" in ran.stdout
    assert "gang: 2 GPUs in VC default\n" in ran.stdout


def test_where_jobs_may_borrow_a_vc_is_not_held_to_its_own(tmp_path: Path) -> None:
    script = "import classroom, live, sys; classroom.POLICY = 'fifo'; sys.exit(live.main(['1']))"
    ran = play("-c", f"import sys; sys.path.insert(0, {str(LAB)!r}); {script}", tmp_path=tmp_path)
    assert ran.returncode == 1
    assert "NOT AS EXPECTED: one runs, on Dan's machine; Carol's stays idle" in ran.stdout


def test_an_experiment_that_there_is_not(tmp_path: Path) -> None:
    ran = play(str(LAB / "live.py"), "7", tmp_path=tmp_path)
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (2, "error: there is no experiment 7")
