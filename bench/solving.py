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
import re
import signal
import sys
import tempfile
import time
from math import nan
from pathlib import Path
from typing import Any

import httpx
import msgspec
from bench.crash import Server
from bench.load import Figure, exchange, http, job, p99, print_figures
from bench.policies import AtOnce
from bench.words import machine
from tests.support.snapshot import snapshot
from tests.support.solving import SOLVING, Solving

from skep.core.events import Solved
from skep.core.memory import Memory, Of, Slot
from skep.core.plan import Plan
from skep.core.record import decode
from skep.core.view import Trigger, View
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
        began_s = time.perf_counter()
        for each in range(int(rate * seconds / CLIENTS)):
            due_s = began_s + (each * CLIENTS + number) / rate
            await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
            body = json.dumps(job(number * 1_000_000 + each)).encode()
            taken_s.append(await exchange(reader, writer, http("POST", "/api/v1/jobs", body)))
        writer.close()

    async def run() -> None:
        taken_s: list[list[float]] = [[] for _ in range(CLIENTS)]
        began_s = time.perf_counter()
        await asyncio.gather(*(client(*each) for each in enumerate(taken_s)))
        answer.put((time.perf_counter() - began_s, taken_s))

    asyncio.run(run())


ROUNDS = Slot("rounds", int, Of.ALL)


class Counting(Solving):
    """Counts its rounds."""

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = super().plan(view, memory, trigger)
        plan.remember(ROUNDS, "", (ROUNDS.get(memory) or 0) + 1)
        return plan


def age_of_answer(server: Server) -> float:
    """Of the one in force, as `/metrics` has it; NaN: there is none."""
    lines = httpx.get(f"{server.url.removesuffix('/api/v1')}/metrics", timeout=60).text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith("skep_solver_answer_age_seconds{")), nan)


class UnderLoad(msgspec.Struct):
    rate: float
    p99_ms: float
    seconds: float
    oldest_s: float = 0.0
    """The greatest age of the answer in force."""
    rounds: int = 0
    said: set[str] = set()
    """Problems, as the policy page and `ps` show them."""


def under_load(folder: Path, policy: str, seconds: float, rate: float) -> UnderLoad:
    folder.mkdir()
    server = Server(folder / "data", cluster="1x8", policy=policy)
    server.data.mkdir()
    server.start()
    found = UnderLoad(0.0, 0.0, 0.0)
    try:
        httpx.post(f"{server.url}/jobs", json=job(0), timeout=60).raise_for_status()
        while "Counting" in policy and not age_of_answer(server) >= 0:  # that for one job comes at once
            time.sleep(0.1)
        context = multiprocessing.get_context("spawn")
        answer = context.Queue()
        load = context.Process(target=paced, args=(server.port, rate, seconds, answer))
        load.start()
        while answer.empty():
            time.sleep(2.0)
            found.oldest_s = max(found.oldest_s, age_of_answer(server))
            problems = httpx.get(f"{server.url}/policy", timeout=60).json()["problems"]
            found.said |= {re.sub(r"\d+ s", "N s", each) for each in problems}
        found.seconds, taken_s = answer.get(timeout=60)
        load.join()
        found.rate, found.p99_ms = sum(map(len, taken_s)) / found.seconds, p99(taken_s)
    finally:
        server.kill()  # its jobs end with the folder
        server.start()
        stop_first(server)
    store = Store(server.data / "skep.db")
    found.rounds = ROUNDS.get(recover(store)[0].memory) or 0
    store.close()
    return found


def stop_first(server: Server) -> None:
    """Those that run, then the server: the others never started."""
    for each in httpx.get(f"{server.url}/jobs?state=running", timeout=60).json()["jobs"]:
        httpx.post(f"{server.url}/jobs/{each['id']}/stop", json={}, timeout=60)
    server.stop()


def slow(seconds: float, rate: float, solve_s: float) -> bool:
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}")
    os.environ["PYTHONPATH"] = str(ROOT)  # for the process that solves
    with tempfile.TemporaryDirectory() as name:
        bare = under_load(Path(name) / "fifo", "fifo", min(seconds, 20.0), rate)
        policy = f"{__file__}:Counting:round_s=1,sleep_s={solve_s:g},quick=1"
        found = under_load(Path(name) / "solving", policy, seconds, rate)
    print(f"shown meanwhile: {sorted(found.said)}")
    oldest_s = 0.8 * min(solve_s, found.seconds)
    return print_figures(
        [
            Figure("fifo, submissions", bare.rate, "/s"),
            Figure("  acknowledged, p99", bare.p99_ms, "ms"),
            Figure("slow solver, submissions", found.rate, "/s", 0.95 * rate, at_least=True),
            Figure("  acknowledged, p99", found.p99_ms, "ms", 100),
            Figure("  as a multiple of fifo's", found.p99_ms / bare.p99_ms, ""),
            Figure("rounds per second", found.rounds / found.seconds, "/s", 0.8, at_least=True),
            Figure("greatest age of the answer in force", found.oldest_s, "s", oldest_s, at_least=True),
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
    events = sum(each.kind == "solver" for each in store.notices(0, None, 1_000_000))
    live.close()
    again = Store(folder / "skep.db")  # with what was still to be written
    rows = again.jobs(JobFilter(all=True), len(taken) + 1, None)
    lost = {*taken} - {str(row.seq) for row in rows if row.state == "succeeded" and row.attempts == 1}
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
