"""Faults under load, and the judgement afterwards."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import msgspec
from bench.crash.all import FAULTS, SERVER_ONLY
from bench.crash.faults import Scene
from bench.crash.load import Client, Made
from bench.crash.server import WAIT_S, Server

from skep.core.record import decode
from skep.core.snapshot import dump
from skep.service.recover import recompute, recover
from skep.service.store import JobFilter, Store

RATE_PER_S = 3.0
END_S = 5 * WAIT_S
"""For the last jobs: some wait for a minute after they were killed several times."""


class Seen(msgspec.Struct):
    faults: Counter[str]
    jobs: int
    launches: int
    slowest_restart_s: float


def run_trial(
    folder: Path, faults: int, seed: int, kinds: list[str] | None = None, *, clients: int = 3, say: bool = False
) -> Seen:
    chance = random.Random(seed)
    kinds = list(FAULTS) if kinds is None else kinds
    data, ledger = folder / "data", folder / "ledger"
    data.mkdir()
    ledger.touch()
    server = Server(data)
    scene = Scene(server, chance)
    scene.start()
    stopping = threading.Event()
    them = [Client(server, ledger, number, stopping) for number in range(clients)]
    for client in them:
        client.start()
    done: Counter[str] = Counter()
    for number in range(faults):
        time.sleep(chance.expovariate(RATE_PER_S))
        kind = chance.choice(kinds)
        FAULTS[kind](scene)
        done[kind] += 1
        if say:
            print(f"\r{number + 1} of {faults} faults, {kind:24}", end="", file=sys.stderr)
    stopping.set()
    for client in them:
        client.join(WAIT_S)
        assert not client.is_alive(), "a submission is not answered"
    wait_for_end(server)
    server.stop()
    made = {key: value for client in them for key, value in client.made.items()}
    launches = judge(data, ledger, made, is_once=set(kinds) <= SERVER_ONLY)
    return Seen(done, len(made), launches, scene.slowest_restart_s)


def wait_for_end(server: Server) -> None:
    end_s = time.monotonic() + END_S
    while jobs := httpx.get(f"{server.url}/jobs", timeout=WAIT_S).json()["jobs"]:
        if time.monotonic() > end_s:
            raise AssertionError(f"{len(jobs)} jobs do not end: {jobs[:5]}")
        time.sleep(0.2)


def judge(data: Path, ledger: Path, made: dict[str, Made], *, is_once: bool) -> int:
    """The number of starts. `is_once`: no task was killed, so each has run just once."""
    store = Store(data / "skep.db")
    rows = {str(row.seq): row for row in store.jobs(JobFilter(all=True), 1_000_000, None)}
    assert len(rows) == len(made), f"{len(made)} submissions became {len(rows)} jobs"
    times = [at_s for (at_s,) in store.db.execute("SELECT at_s FROM log ORDER BY seq")]
    assert times == sorted(times), "the logged time went back"
    lines = Counter(ledger.read_text().splitlines())
    twice = [line for line, count in lines.items() if count > 1]
    assert not twice, f"run twice: {twice}"
    ends = Counter(line.split()[1].rpartition("/")[0] for line in lines if line.startswith("end"))
    launches = 0
    for key, job in made.items():
        row, attempts = rows[job.id], store.attempts(int(job.id))
        launches += len(attempts)
        assert row.name == f"job-{key}", f"job {job.id} is {row.name}, not of {key}"
        assert row.state == ("failed" if job.code else "succeeded"), f"job {job.id} has {row.state}: {row.reason}"
        assert attempts[-1].code == job.code, f"job {job.id} ended with {attempts[-1]}"
        last = ends[f"{job.id}/{attempts[-1].launch}"]
        assert 1 <= last <= job.tasks, f"job {job.id}: {last} ends of {job.tasks} tasks"
        assert last == job.tasks or job.code, f"job {job.id}: {last} ends of {job.tasks} tasks"
        assert not is_once or len(attempts) == 1, f"job {job.id} was started {len(attempts)} times"
    assert not left_over(data), f"orphans: {left_over(data)}"
    (state, _), (folded, _) = recover(store), recover(store, from_start=True)
    assert dump(state) == dump(folded), "the state is not the fold of the log"
    assert recompute([decode(entry) for entry in store.entries()]) == []
    store.close()
    return launches


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
