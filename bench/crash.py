"""Kill the server again and again under load: `python -m bench.crash [--kills 200] [--seed 0]`.

Jobs write into a ledger when they start and when they end. However often the server dies (`kill -9`, at random
moments), every submission that was made becomes one job, every job ends once with the code it should, and nobody is
left over.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

from skep.core.record import decode
from skep.core.snapshot import dump
from skep.service.recover import recompute, recover
from skep.service.store import JobFilter, Store

SCRIPT = """
echo "start $SKEP_JOB_ID $SKEP_LAUNCH" >> {ledger}
{away}sleep {seconds}
echo "end $SKEP_JOB_ID $SKEP_LAUNCH" >> {ledger}
exit {code}
"""
AWAY = "setsid sleep 300 & "
"""Some jobs leave something behind."""
WAIT_S = 120.0
"""For what comes soon: the machine may be busy, and only that it comes matters here."""


class Server:
    """A real `skep up` on a folder."""

    def __init__(self, data: Path, cluster: str = "2x4", policy: str = "fifo:walk=skip") -> None:
        self.data = data
        self.log = data.with_suffix(".log")
        """Beside the data: it can be read when the data's disk is full."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api/v1"
        self.options = ["--cluster", cluster, "--policy", policy]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Until it answers; seconds that took."""
        began_s = time.monotonic()
        command = [sys.executable, "-m", "skep.cli.main", "up", "--data", str(self.data), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log, start_new_session=True)
        while time.monotonic() - began_s < WAIT_S:
            try:
                httpx.get(f"{self.url}/health", timeout=WAIT_S)
                return time.monotonic() - began_s
            except httpx.HTTPError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
        raise RuntimeError(f"the server does not answer:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)


class Client(threading.Thread):
    """Submits jobs for ever, each until it has an answer."""

    def __init__(self, server: Server, ledger: Path, number: int, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.ledger = ledger
        self.number = number
        self.stopping = stopping
        self.made: dict[str, tuple[str, int]] = {}
        """By key: (id, exit code that the job should have)."""

    def run(self) -> None:
        chance = random.Random(self.number)
        while not self.stopping.is_set():
            key = f"{self.number}-{len(self.made)}"
            code = chance.choice((0, 0, 0, 7))
            self.made[key] = (self._submit(key, code, chance), code)
            time.sleep(chance.uniform(0.0, 0.25))

    def _submit(self, key: str, code: int, chance: random.Random) -> str:
        away = AWAY if chance.random() < 0.2 else ""
        seconds = round(chance.uniform(0.0, 0.8), 2)
        command = SCRIPT.format(ledger=self.ledger, seconds=seconds, code=code, away=away)
        job = {"name": f"job-{key}", "tasks": {"w": {"gpus": chance.choice((1, 1, 2)), "command": command}}}
        body = json.dumps(job).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        while True:
            try:
                answer = httpx.post(f"{self.server.url}/jobs", content=body, headers=headers, timeout=WAIT_S)
                if answer.status_code == 201:
                    return str(answer.json()["id"])
                if answer.status_code < 500:
                    raise RuntimeError(answer.text)
            except httpx.HTTPError:
                pass
            time.sleep(0.02)


def run_trial(folder: Path, kills: int, seed: int, *, say: bool = False) -> dict[str, float]:
    chance = random.Random(seed)
    data, ledger = folder / "data", folder / "ledger"
    data.mkdir()
    ledger.touch()
    server = Server(data)
    server.start()
    stopping = threading.Event()
    clients = [Client(server, ledger, number, stopping) for number in range(3)]
    for client in clients:
        client.start()
    slowest_s = 0.0
    for number in range(kills):
        time.sleep(chance.expovariate(3.0))
        server.kill()
        slowest_s = max(slowest_s, server.start())
        if say and sys.stderr.isatty():
            print(f"\r{number + 1} of {kills} kills", end="", file=sys.stderr)
    stopping.set()
    for client in clients:
        client.join(WAIT_S)
        assert not client.is_alive(), "a submission is not answered"
    wait_for_end(server)
    server.stop()
    made = {key: value for client in clients for key, value in client.made.items()}
    judge(data, ledger, made)
    return {"kills": kills, "jobs": len(made), "slowest_restart_s": slowest_s}


def wait_for_end(server: Server) -> None:
    end_s = time.monotonic() + 2 * WAIT_S
    while httpx.get(f"{server.url}/jobs", timeout=WAIT_S).json()["jobs"]:
        if time.monotonic() > end_s:
            raise AssertionError(f"jobs do not end: {httpx.get(f'{server.url}/jobs').text[:2000]}")
        time.sleep(0.2)


def judge(data: Path, ledger: Path, made: dict[str, tuple[str, int]]) -> None:
    store = Store(data / "skep.db")
    rows = {str(row.seq): row for row in store.jobs(JobFilter(all=True), 1_000_000, None)}
    assert len(rows) == len(made), f"{len(made)} submissions became {len(rows)} jobs"
    lines = Counter(ledger.read_text().splitlines())
    twice = [line for line, count in lines.items() if count > 1]
    assert not twice, f"run twice: {twice}"
    ends = Counter(line.split()[1] for line in lines if line.startswith("end"))
    for key, (job_id, code) in made.items():
        row = rows[job_id]
        assert row.name == f"job-{key}", f"job {job_id} is {row.name}, not of {key}"
        assert row.state == ("failed" if code else "succeeded"), f"job {job_id} has {row.state}: {row.reason}"
        assert ends[job_id] == 1, f"job {job_id} ended {ends[job_id]} times"
        assert store.attempts(row.seq)[-1].code == code
    assert not left_over(data), f"orphans: {left_over(data)}"
    (state, _), (folded, _) = recover(store), recover(store, from_start=True)
    assert dump(state) == dump(folded), "the state is not the fold of the log"
    assert recompute([decode(entry) for entry in store.entries()]) == []
    store.close()


def left_over(data: Path) -> list[str]:
    """Processes that still carry the environment of a job."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                environ = (process / "environ").read_bytes()
                if b"SKEP_TASK_DIR=" + str(data).encode() in environ:
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        seen = run_trial(Path(name), options.kills, options.seed, say=True)
    print(f"\n{seen['kills']} kills, {seen['jobs']} jobs: none lost, run twice or orphaned, all exit codes kept")
    print(f"slowest restart: {seen['slowest_restart_s']:.2f} s until it answered")


if __name__ == "__main__":
    main()
