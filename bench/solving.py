"""Policies that solve beside the server, when solvers are slow or die.

    python -m bench.solving slow [--seconds 60] [--rate 500] [--solve-s 60]
    python -m bench.solving kill [--kills 200] [--seed 0]

`slow`: a real server whose policy decides in rounds of a second, by answers that take a minute each. Submissions come
at a given rate; how long is an acknowledgement, and do the rounds go on with the last answer? Exit code 1 if not.

`kill`: the service with an engine without processes, whose jobs end at once. Solvers are killed at random moments. In
the end all jobs must have succeeded with one start, every kill must be an event that people see and a failure in the
figures, and the log alone must lead to the state.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
from bench.crash import Server
from bench.load import Figure, http, job, one_client, p99, print_figures, stop_all
from bench.policies import AtOnce
from bench.words import machine
from tests.support.snapshot import snapshot
from tests.support.solving import SOLVING

from skep.core.events import Solved
from skep.core.record import decode
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.recover import recover
from skep.service.store import JobFilter, Store

ROOT = Path(__file__).parent.parent
CLIENTS = 32


def paced(port: int, rate: float, seconds: float, answer: Any) -> None:
    """In a process of its own: single submissions at this rate, over several connections."""

    async def client(number: int, taken_s: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        del reader
        began_s = time.perf_counter()
        for each in range(int(rate * seconds / CLIENTS)):
            due_s = began_s + (each * CLIENTS + number) / rate
            await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
            body = json.dumps(job(number * 1_000_000 + each)).encode()
            await one_client(port, [http("POST", "/api/v1/jobs", body)], taken_s)

    async def run() -> None:
        taken_s: list[list[float]] = [[] for _ in range(CLIENTS)]
        began_s = time.perf_counter()
        await asyncio.gather(*(client(*each) for each in enumerate(taken_s)))
        answer.put((time.perf_counter() - began_s, taken_s))

    asyncio.run(run())


def rounds_of(server: Server) -> tuple[float, float]:
    """Decisions so far, and the age of the answer in force."""
    lines = httpx.get(f"{server.url.removesuffix('/api/v1')}/metrics", timeout=60).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("skep_"))
    return float(values["skep_decisions_total"]), float(values.get('skep_solver_answer_age_seconds{vc=""}', "nan"))


def slow(seconds: float, rate: float, solve_s: float) -> bool:
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}")
    os.environ["PYTHONPATH"] = str(ROOT)  # for the process that solves
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
        server = Server(data, cluster="1x8", policy=f"{SOLVING}:round_s=1,sleep_s={solve_s:g},quick=1")
        server.start()
        try:
            httpx.post(f"{server.url}/jobs", json=job(0), timeout=60).raise_for_status()
            while not rounds_of(server)[1] >= 0:  # the answer for one job comes at once
                time.sleep(0.1)
            before, _ = rounds_of(server)
            context = multiprocessing.get_context("spawn")
            answer = context.Queue()
            load = context.Process(target=paced, args=(server.port, rate, seconds, answer))
            load.start()
            took_s, taken_s = answer.get(timeout=seconds * 10 + 60)
            load.join()
            after, age_s = rounds_of(server)
            said = httpx.get(f"{server.url}/policy", timeout=60).json()["problems"]
        finally:
            stop_all(server)
    count = sum(map(len, taken_s))
    print(f"the policy page says: {said}")
    return print_figures(
        [
            Figure("submissions", count / took_s, "/s", 0.95 * rate, at_least=True),
            Figure("  acknowledged, p99", p99(taken_s), "ms", 100),
            Figure("rounds meanwhile, of one second", after - before, "", 0.8 * took_s, at_least=True),
            Figure("age of the answer in force", age_s, "s", min(solve_s, took_s) * 0.9, at_least=True),
        ]
    )


class Killed(msgspec.Struct):
    kills: int
    """Processes that were killed before they had answered."""
    failures: int
    """As the figures of the server have them."""
    events: int
    """As people see them."""
    logged: int
    taken: int
    starts: int
    lost: int
    is_same: bool

    @property
    def is_good(self) -> bool:
        is_seen = self.kills == self.failures == self.events == self.logged
        return is_seen and not self.lost and self.is_same and self.starts == self.taken


def kill(folder: Path, kills: int, seed: int) -> Killed:
    os.environ["PYTHONPATH"] = str(ROOT)
    chance = random.Random(seed)
    store = Store(folder / "skep.db")
    live = Live(store, AtOnce, time.time, cluster=("16x8", "16x8"), policy=f"{SOLVING}:sleep_s=0.2,retry_s=0.1")
    taken: list[str] = []
    known: set[int] = set()
    while len(known) < kills:
        role = TaskRole(count=4, gpus=1, command="true")
        taken += live.submit([Request("job", {"task": role}, user="ann")], "ann").result(60)
        time.sleep(chance.uniform(0.0, 0.15))
        for pid in live.solvers.processes():
            if pid not in known and chance.random() < 0.7:
                os.kill(pid, signal.SIGKILL)
                known.add(pid)
    while any(live.stats()["jobs"].get(state, 0) for state in ("pending", "launching", "running", "stopping")):
        time.sleep(0.05)
    failures = live.stats()["solver_failures"]
    rows = store.jobs(JobFilter(all=True), len(taken) + 1, None)
    lost = {*taken} - {str(row.seq) for row in rows if row.state == "succeeded" and row.attempts == 1}
    events = sum(each.kind == "solver" for each in store.notices(0, None, 1_000_000))
    live.close()
    again = Store(folder / "skep.db")
    logged = [each for entry in map(decode, again.entries()) for each in entry.events]
    errors = [each for each in logged if isinstance(each, Solved) and each.error]
    state, _ = recover(again, from_start=True)
    same = snapshot(state)["jobs"] == snapshot(live.writer.state)["jobs"]
    again.close()
    killed = sum("SIGKILL" in each.error for each in errors)
    return Killed(killed, failures, events, len(errors), len(taken), live.engine.starts, len(lost), same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("slow", "kill"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--solve-s", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "slow":
        sys.exit(not slow(options.seconds, options.rate, options.solve_s))
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        found = kill(Path(folder), options.kills, options.seed)
    print(
        f"{found.kills} solvers killed; {found.failures} failures counted, {found.events} events, {found.logged} logged"
    )
    print(f"{found.taken:,} jobs taken, {found.starts:,} starts, {found.lost} lost")
    print(f"the log leads to the state: {found.is_same}")
    sys.exit(not found.is_good)


if __name__ == "__main__":
    main()
