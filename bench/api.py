"""How fast the API behind the dashboard answers with 10,000 jobs on 1,000 GPUs, and how much the first page loads.

    python bench/api.py            # prints a table; --json FILE keeps the figures

The server is a process of its own, with the real service and an engine on paper: jobs start and end at once, no
processes run. While it is measured, jobs keep coming and going. Times are given with those of GET /health, which does
nothing, in the same run. Beside them is the CPU time that the server took for one request: on a machine that others use
too it says more than what a clock on the wall does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.support.engines import NoEngine

from skep.core.actions import Action, Launch, Move, Setting, Stop
from skep.core.reports import Exited, Moved, Report, Started
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.store import Store

NODES, GPUS = 125, 8
ENDED, RUNNING, PENDING = 7500, 500, 2000
READERS = 4
TIMES = 60
"""Requests of each kind."""
IDLE_S = 3.0
RATE_S = 0.05
"""Between two submissions while it is measured."""
PAGES = {
    "overview": "/overview",
    "map": "/map",
    "history, 24 h": "/history?vc=true",
    "timeline, 24 h": "/timeline",
    "jobs, 100 rows": "/jobs?all=true&counts=true",
    "jobs, 1,000 rows": "/jobs?all=true&limit=1000",
    "jobs, sorted by waiting": "/jobs?all=true&sort=-waited",
    "jobs, searched": "/jobs?all=true&q=train+user-7",
    "one job": "/jobs/9000",
    "explain": "/jobs/9900/explain",
    "nodes": "/nodes",
    "vcs": "/vcs",
    "usage by user": "/usage?by=user",
    "decisions": "/decisions",
    "events, last 100": "/events?follow=false&last=100",
}
FIRST = ("overview", "map", "history, 24 h", "timeline, 24 h", "events, last 100", "vcs")
"""What the overview page reads."""


class Paper(NoEngine):
    """Everything happens at once; the first jobs end as soon as they have started."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.ends_until = ENDED

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        reports: list[Report] = []
        for action in actions:
            if isinstance(action, Launch):
                reports.append(Started(action.job_id, action.launch))
                number = int(action.job_id)
                if number <= self.ends_until or number > ENDED + RUNNING + PENDING:
                    reports.append(Exited(action.job_id, action.launch, number % 10 == 0, seconds=1.0))
            elif isinstance(action, Move):
                reports.append(Moved(action.job_id, action.launch))
            elif isinstance(action, Stop):
                reports.append(Exited(action.job_id, 1, 143, was_stopped=True))
        self.live.tell(reports)

    def progress(self, job_id: str) -> dict[str, Setting]:
        return {"step": 120, "steps": 1000, "loss": 0.25, "samples_per_s": 812.5, "at_s": 1.0}


def request(number: int, gpus: int) -> Request:
    role = TaskRole(count=1, gpus=gpus, command="python train.py --lr 0.1 --epochs 90", env={"SEED": str(number)})
    vc, user = f"vc-{number % 4}", f"user-{number % 40}"
    return Request(name=f"train-{number % 700}", tasks={"worker": role}, vc=vc, user=user, group=f"sweep-{number % 90}")


def serve(folder: Path, port: int) -> None:
    import uvicorn

    from skep.server.app import make_app, make_context
    from skep.server.collector import short_pauses
    from skep.server.config import make_config, open_socket
    from skep.server.tokens import Tokens

    live = Live(
        Store(folder / "skep.db"), Paper, time.time, cluster=("bench", f"{NODES}x{GPUS}"), policy="fifo:walk=skip"
    )
    for first in range(1, ENDED + 1, 500):
        live.submit([request(number, 1) for number in range(first, first + 500)], "bench").result()
    while live.stats()["jobs"].get("pending", 0) or live.stats()["jobs"].get("running", 0):
        time.sleep(0.05)
    live.submit([request(number, 2) for number in range(RUNNING)], "bench").result()
    live.submit([request(number, 4) for number in range(PENDING)], "bench").result()
    config = make_config(None, {"data": str(folder), "port": port})
    context = make_context(live, config, Tokens(folder), lambda _: None, 1024)
    fill_history(context)
    threading.Thread(target=keep_busy, args=(live,), daemon=True).start()
    settings = uvicorn.Config(make_app(context), http="httptools", log_config=None, access_log=False)
    with short_pauses():
        asyncio.run(uvicorn.Server(settings).serve([open_socket(config)]))


def fill_history(context: Any) -> None:
    """Two days of samples, as a server that runs for long has them."""
    now_s, sample = time.time(), context.live.sample()
    for number in range(0, 2 * 86400, 15):
        context.history.add(now_s - number, sample)


def keep_busy(live: Live) -> None:
    """Jobs without GPUs come, run and end."""
    number = 0
    while True:
        number += 1
        live.submit([request(number, 0)], "bench").result()
        time.sleep(RATE_S)


def cpu_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_rate(pid: int) -> float:
    """CPU seconds a second that it uses when nobody asks: for the jobs that come and go."""
    before_s, began_s = cpu_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    return (cpu_s(pid) - before_s) / (time.monotonic() - began_s)


class Figures(msgspec.Struct):
    seconds: list[float]
    bytes: int
    """Of one answer on the wire."""
    cpu_s: float
    """Of the server, for one request."""


def measure(client: httpx.Client, path: str, pid: int, idle: float) -> Figures:
    """Four requests at a time."""

    def one(_: int) -> float:
        began_s = time.perf_counter()
        answer = client.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - began_s

    with client.stream("GET", f"/api/v1{path}") as answer:
        size = sum(len(piece) for piece in answer.iter_raw())
    before_s, began_s = cpu_s(pid), time.monotonic()
    with ThreadPoolExecutor(READERS) as pool:
        seconds = list(pool.map(one, range(TIMES)))
    used_s = cpu_s(pid) - before_s - idle * (time.monotonic() - began_s)
    return Figures(seconds, size, max(used_s, 0.0) / TIMES)


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve[0]), int(given.serve[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        port = 20_000 + os.getpid() % 10_000
        server = subprocess.Popen([sys.executable, __file__, "--serve", folder, str(port)])
        try:
            report(measured(port, server), given.json)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def measured(port: int, server: subprocess.Popen[bytes]) -> dict[str, Figures]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        while server.poll() is None:
            try:
                client.get("/api/v1/health")
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        measure(client, "/overview", server.pid, 0.0)
        idle = idle_rate(server.pid)
        pages = {"health": "/health", **PAGES}
        return {name: measure(client, path, server.pid, idle) for name, path in pages.items()}


def report(found: dict[str, Figures], file: Path | None) -> None:
    print(f"{'':<26}{'p50 ms':>8}{'p99 ms':>8}{'CPU ms':>8}{'kB gzip':>9}")
    for name, each in found.items():
        p50, p99 = (quantile(each.seconds, part) * 1000 for part in (0.5, 0.99))
        print(f"{name:<26}{p50:>8.1f}{p99:>8.1f}{each.cpu_s * 1000:>8.1f}{each.bytes / 1000:>9.1f}")
    print(f"\nthe first page loads {sum(found[name].bytes for name in FIRST) / 1000:.0f} kB of data")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if file is not None:
        file.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
