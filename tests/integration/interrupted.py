"""Runs training scripts as real processes in the environment of a Skep job, and interrupts them at drawn moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from skep.train import STOPPED

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "pytorch"
LIMIT_S = 300.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Training:
    """One job in a folder of its own; `start` it as often as needed."""

    def __init__(self, folder: Path, script: Path, *arguments: str, ranks: int = 1, torchrun: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.ranks = ranks
        self.is_torchrun = torchrun
        self._command = [str(script), *arguments, "--curve", str(folder / "curve")]
        self.more: dict[str, str] = {}
        self.launch = 0
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.launch += 1
        self.processes = []
        port = free_port()
        for task in range(1 if self.is_torchrun else self.ranks):
            self.task_folder(task).mkdir(parents=True)
            line = [sys.executable, *self._command]
            if self.is_torchrun:
                line[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
            log = (self.task_folder(task) / "log").open("wb")
            with log:
                environment = self._environment(task, port)
                self.processes.append(subprocess.Popen(line, env=environment, stdout=log, stderr=log))

    def _environment(self, task: int, port: int) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP_", "PYTEST_", "TORCH"))}
        mine |= {"SKEP_TASK_DIR": str(self.task_folder(task)), "SKEP_CHECKPOINT_DIR": str(self.folder / "checkpoint")}
        if not self.is_torchrun:
            mine |= {"RANK": str(task), "WORLD_SIZE": str(self.ranks), "MASTER_ADDR": "127.0.0.1"}
            mine |= {"MASTER_PORT": str(port), "LOCAL_RANK": str(task)}
        return {**mine, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "", **self.more}

    def task_folder(self, task: int) -> Path:
        return self.folder / str(self.launch) / f"worker-{task}"

    def progress(self, task: int = 0) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.task_folder(task) / "progress.json").read_bytes())
        return values

    def lines(self) -> int:
        path = self.folder / "curve.0"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for(self, lines: int) -> None:
        """Until the curve has grown by so many losses, or all have ended."""
        target, limit_s = self.lines() + lines, time.monotonic() + LIMIT_S
        while self.lines() < target and any(process.poll() is None for process in self.processes):
            assert time.monotonic() < limit_s, self.log()
            time.sleep(0.005)

    def signal(self, number: int, only: int | None = None) -> None:
        """Like the engine: to every process of the job, in any order; torchrun's workers are among them."""
        found = [pid for process in self.processes for pid in (process.pid, *descendants(process.pid))]
        for pid in found if only is None else [self.processes[only].pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self) -> list[int]:
        try:
            return [process.wait(LIMIT_S) for process in self.processes]
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            raise AssertionError(f"does not end: {self.log()}") from None

    def finish(self) -> None:
        self.start()
        assert self.wait() == [0] * len(self.processes), self.log()
        assert self.progress()["done"] is True

    def log(self) -> str:
        texts = [self.task_folder(task).joinpath("log").read_text() for task in range(len(self.processes))]
        return "\n".join(texts)

    def curve(self) -> list[dict[int, str]]:
        """Loss by step of every rank, exactly; a step that was computed twice must have given the same both times."""
        return [self._curve(rank) for rank in range(len(list(self.folder.glob("curve.*"))))]

    def _curve(self, rank: int) -> dict[int, str]:
        losses: dict[int, str] = {}
        for line in (self.folder / f"curve.{rank}").read_text().splitlines():
            step, loss = line.split()
            assert losses.setdefault(int(step), loss) == loss, f"step {step} of rank {rank} differs"
        return losses


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in children for each in (int(child), *descendants(int(child)))]


def interrupt(training: Training, number: int, times: int, seed: int, most: int = 12) -> int:
    """Starts and interrupts it so often at drawn steps; returns how many of the starts were really interrupted.

    SIGTERM goes to all processes or to one of them: the ranks must leave together in both cases."""
    draw = random.Random(seed)
    interrupted = 0
    for _ in range(times):
        training.start()
        training.wait_for(draw.randint(1, most))
        is_one = number == signal.SIGTERM and draw.random() < 0.5
        training.signal(number, only=draw.randrange(len(training.processes)) if is_one else None)
        codes = training.wait()
        if codes == [0] * len(codes):
            break
        interrupted += 1
        if number == signal.SIGTERM:
            assert training.is_torchrun or codes == [STOPPED] * len(codes), training.log()
            for task in range(len(codes)):
                assert training.progress(task)["left"] is True, training.log()
                assert training.progress(task)["done"] is False
    return interrupted
