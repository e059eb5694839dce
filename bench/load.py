"""How much a server bears: `python -m bench.load`. Beside it, in the same run, a bare FastAPI+SQLite handler.

Submissions go to a full cluster, so that all of them wait and every one makes the scheduler think; the load comes from
a process of its own. What the budgets of the docs ask for is checked, exit code 1 when one is broken.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
from bench.crash import Server
from bench.words import machine

CLIENTS = 32
SINGLES = 4000
BATCHES, BATCH = 6, 1000
PAGES = 300

BARE = """
import sqlite3, sys, uvicorn
from fastapi import FastAPI, Request
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, body TEXT)")
app = FastAPI()

@app.post("/api/v1/jobs", status_code=201)
async def submit(request: Request):
    body = await request.body()
    return {"id": db.execute("INSERT INTO jobs (body) VALUES (?)", (body,)).lastrowid}

@app.get("/api/v1/health")
async def health():
    return {}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


class Figure(msgspec.Struct):
    what: str
    seen: float
    unit: str
    budget: float | None = None
    at_least: bool = False

    @property
    def is_kept(self) -> bool:
        if self.budget is None:
            return True
        return self.seen >= self.budget if self.at_least else self.seen <= self.budget


def job(number: int, command: str = "sleep 600") -> dict[str, Any]:
    return {"name": f"job-{number}", "tasks": {"w": {"gpus": 1, "command": command}}, "user": "bench"}


async def one_client(port: int, requests: list[bytes], taken_s: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        taken_s.append(await exchange(reader, writer, request))
    writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> float:
    """Seconds from a request to its answer."""
    began_s = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    taken_s = time.perf_counter() - began_s
    if status >= 300:
        raise RuntimeError(f"{status}: {body[:300]!r}")
    return taken_s


def load(port: int, requests: list[list[bytes]], answer: Any) -> None:
    """In a process of its own: one list of requests for each client; answers (seconds, seconds of each by client)."""

    async def run() -> None:
        taken_s: list[list[float]] = [[] for _ in requests]
        began_s = time.perf_counter()
        await asyncio.gather(*(one_client(port, *each) for each in zip(requests, taken_s, strict=True)))
        answer.put((time.perf_counter() - began_s, taken_s))

    asyncio.run(run())


def drive(port: int, requests: list[list[bytes]]) -> tuple[float, list[list[float]]]:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=load, args=(port, requests, answer))
    process.start()
    found: tuple[float, list[list[float]]] = answer.get(timeout=300)
    process.join()
    return found


def http(method: str, path: str, body: bytes = b"") -> bytes:
    kind = "Content-Type: application/json\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def singles(first: int, count: int) -> list[list[bytes]]:
    requests = [http("POST", "/api/v1/jobs", json.dumps(job(first + n)).encode()) for n in range(count)]
    return [requests[client::CLIENTS] for client in range(CLIENTS)]


def p99(taken_s: list[list[float]]) -> float:
    every = sorted(each for client in taken_s for each in client)
    return every[int(len(every) * 0.99)] * 1000


def bare_rate(folder: Path) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", BARE, str(folder / "bare.db"), str(port)])
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/api/v1/health"))
        seconds, taken_s = drive(port, singles(0, SINGLES))
        return sum(map(len, taken_s)) / seconds
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(check: Callable[[], bool], seconds: float = 60.0, every_s: float = 0.02) -> None:
    end_s = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end_s:
            raise RuntimeError("waited too long")
        time.sleep(every_s)


def submit_figures(server: Server, folder: Path) -> list[Figure]:
    bare = bare_rate(folder)
    seconds, taken_s = drive(server.port, singles(0, SINGLES))
    rate = sum(map(len, taken_s)) / seconds
    batch = json.dumps({"jobs": [job(n) for n in range(BATCH)]}).encode()
    batch_s, _ = drive(server.port, [[http("POST", "/api/v1/jobs:batch", batch)] * BATCHES])
    return [
        Figure("bare FastAPI+SQLite submissions", bare, "/s"),
        Figure("submissions, 32 clients", rate, "/s", 500, at_least=True),
        Figure("  of what the bare handler does", rate / bare, ""),
        Figure("  acknowledged, p99", p99(taken_s), "ms", 100),
        Figure("jobs in batches", BATCHES * BATCH / batch_s, "/s", 3000, at_least=True),
    ]


def start_times_s(server: Server, folder: Path) -> list[float]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        return sorted(first_start_s(client, folder) for _ in range(8))


def first_start_s(client: httpx.Client, folder: Path) -> float:
    """From the submission to the process, on an idle gpu. It leaves a mark in the folder."""
    mark = folder / "marks" / "started"
    mark.parent.mkdir(exist_ok=True)
    mark.parent.chmod(0o777)
    began_s = time.time()
    body = job(0, f"date +%s.%N > {mark}.tmp; mv {mark}.tmp {mark}; sleep 600")
    client.post("/jobs", json=body).raise_for_status()
    wait_until(mark.exists)
    taken_s = float(mark.read_text()) - began_s
    mark.unlink()
    return taken_s


def fill(server: Server, finished: int) -> None:
    """Jobs that have ended, then jobs that hold every gpu."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        ids = client.post("/jobs:batch", json={"jobs": [{**job(n), "hold": True} for n in range(finished)]}).json()[
            "ids"
        ]
        for job_id in ids:
            client.post(f"/jobs/{job_id}/stop", json={}).raise_for_status()


def read_figures(server: Server) -> list[Figure]:
    _, taken_s = drive(server.port, [[http("GET", "/api/v1/jobs")] * PAGES, *singles(20_000, 1000)])
    pages = drive(server.port, [[http("GET", "/api/v1/jobs")] * PAGES])[1]
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "skep.cli.main", "ps", "--url", server.url.removesuffix("/api/v1")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    ps_s = time.perf_counter() - began_s
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    rss = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    return [
        Figure("first page of jobs, p99, while jobs are submitted", p99(taken_s[:1]), "ms", 100),
        Figure("first page of jobs, p99, alone", p99(pages), "ms", 100),
        Figure("skep ps", ps_s * 1000, "ms", 500),
        Figure("memory of the server at most", rss, "MiB", 500),
    ]


def main() -> None:
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        server = Server(folder / "data", cluster="1x8")
        server.start()
        try:
            starts = start_times_s(server, folder)
            figures = [Figure("submission to running process, median of 8", starts[4] * 1000, "ms", 200)]
            fill(server, 1000)
            figures += submit_figures(server, folder)
            figures += read_figures(server)
        finally:
            stop_all(server)
    sys.exit(not print_figures(figures))


def print_figures(figures: list[Figure]) -> bool:
    """Whether all budgets are kept."""
    for figure in figures:
        budget = (
            "" if figure.budget is None else f"  ({'at least' if figure.at_least else 'at most'} {figure.budget:g})"
        )
        print(f"{figure.what:52} {figure.seen:10,.2f} {figure.unit:4}{budget}{'' if figure.is_kept else '  BROKEN'}")
    return all(figure.is_kept for figure in figures)


def stop_all(server: Server) -> None:
    command = [sys.executable, "-m", "skep.cli.main", "down", "--data", str(server.data), "--stop-jobs"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=120)


if __name__ == "__main__":
    main()
