"""Starts the process of a study or of the check of a trace, and waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import BinaryIO


def start_worker(folder: Path, *args: str, out: int = subprocess.DEVNULL, errors: BinaryIO) -> subprocess.Popen[bytes]:
    """In this folder, and without modules from it (`-P`). Its input stays open while it runs: end of file would mean
    the end of the server."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "skep.server.studies.worker", *args],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=errors,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[bytes], most_s: float) -> int | None:
    """Its exit code; None if it took too long."""
    try:
        return process.wait(most_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    finally:
        if process.stdin is not None:
            process.stdin.close()


def why_ended(code: int | None, said: str, most_s: float) -> str:
    """Why a process did not succeed, in one line."""
    if code is None:
        return f"it took more than {most_s / 60:g} minutes"
    if code == 2 and said:
        return said[-2000:]
    if code < 0:
        return "it was killed: it took too much time or memory"
    return said.splitlines()[-1][:500] if said else f"it ended with exit code {code}"
