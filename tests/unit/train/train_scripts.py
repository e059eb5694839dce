"""Runs small training scripts in processes of their own: nothing of the tests' process takes part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def environment(**more: str) -> dict[str, str]:
    names = ("SKEP_", "PYTEST_", "PYTHON", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCH")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)} | more


def run(code: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", code]
    return subprocess.run(
        line, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=300, check=False
    )


def job_environment(folder: Path) -> dict[str, str]:
    (folder / "task").mkdir(exist_ok=True)
    return {"SKEP_TASK_DIR": str(folder / "task"), "SKEP_CHECKPOINT_DIR": str(folder / "checkpoint")}
