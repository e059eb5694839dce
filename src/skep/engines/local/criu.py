"""Freezing and restoring a task with CRIU, for a job that cannot save itself.

One process tree, no GPU, no open network connection. A restored task has its previous process number and environment;
its output continues in the same file, which therefore lies in the checkpoint folder.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

CHECK_S = 20.0


@functools.cache
def criu_problem() -> str | None:
    """Why tasks cannot be frozen on this machine, in one line; None if they can."""
    if shutil.which("criu") is None:
        return "criu is not installed, so a task cannot be frozen here; it gets SIGTERM and its grace period instead"
    try:
        check = subprocess.run([program(), "check"], capture_output=True, text=True, timeout=CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    else:
        if check.returncode == 0:
            return None
        lines = (check.stderr or check.stdout).strip().splitlines()
        said = lines[-1].strip() if lines else f"exit code {check.returncode}"
    return f"`criu check` fails ({said[:200]}); a task gets SIGTERM and its grace period instead"


def program() -> str:
    """The full path, because a shim may have another PATH."""
    return shutil.which("criu") or "criu"


class Freezer:
    """The commands for one task. Its image lies in the job's checkpoint folder, where every launch finds it."""

    def __init__(self, checkpoint: Path, task: str) -> None:
        self.image = checkpoint / f"criu-{task}"
        self.output = checkpoint / f"criu-{task}.log"

    def freeze(self) -> list[str]:
        self.image.mkdir(parents=True, exist_ok=True, mode=0o700)
        return [program(), "dump", "--tree", "{pid}", "--images-dir", str(self.image), "--manage-cgroups=ignore"]

    def thaw(self, task_folder: Path) -> list[str]:
        """None for the first launch. As a sibling of criu the task becomes a child of the shim."""
        if not (self.image / "inventory.img").exists():
            return []
        command = [program(), "restore", "--images-dir", str(self.image), "--manage-cgroups=ignore"]
        return [*command, "--restore-detached", "--restore-sibling", "--pidfile", str(task_folder / "thawed")]
