"""How many short jobs a server runs, and how soon one runs: `python -m bench.starts [--jobs 400] [--run-as separate]`.

Beside it, in the same run, a loop that only forks, executes and waits for the same commands, as many at once as there
are cores. Exit code 1 when a budget of the docs is broken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from bench.crash import Server
from bench.load import Figure, print_figures, start_times_s, stop_all, wait_until
from bench.words import machine

AT_ONCE = 16
"""GPUs of the virtual cluster, and so jobs that run at once."""


def short(number: int) -> dict[str, Any]:
    return {"name": f"short-{number}", "tasks": {"w": {"gpus": 1, "command": "true"}}, "user": "bench"}


def bare_rate(jobs: int) -> float:
    def once(_: int) -> None:
        pid = os.posix_spawn("/bin/bash", ["bash", "-c", "true"], os.environ)
        os.waitpid(pid, 0)

    began_s = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(once, range(jobs)))
    return jobs / (time.perf_counter() - began_s)


def rate(server: Server, jobs: int) -> float:
    """From the submission of all to the end of the last."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        began_s = time.perf_counter()
        client.post("/jobs:batch", json={"jobs": [short(number) for number in range(jobs)]}).raise_for_status()
        wait_until(lambda: not open_jobs(client), every_s=0.2)  # A question costs about as much as a job.
        return jobs / (time.perf_counter() - began_s)


def open_jobs(client: httpx.Client) -> list[dict[str, Any]]:
    found = client.get("/jobs", params={"limit": 20}).raise_for_status()
    return list(found.json()["jobs"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--run-as", default="server")
    args = parser.parse_args()
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "skep.yaml").write_text(f"run_as: {args.run_as}\n")
        server = Server(folder / "data", cluster=f"1x{AT_ONCE}")
        server.options += ["--config", str(folder / "skep.yaml")]
        server.start()
        try:
            starts = start_times_s(server, folder)
            stop_jobs(server)
            seen = rate(server, args.jobs)
        finally:
            stop_all(server)
        bare = bare_rate(args.jobs)
    figures = [
        Figure("submission to running process, median of 8", statistics.median(starts) * 1000, "ms", 60),
        Figure("  the quickest", starts[0] * 1000, "ms"),
        Figure("short jobs", seen, "/s", 100, at_least=True),
        Figure("bare fork, exec and wait", bare, "/s"),
        Figure("  of that", seen / bare, ""),
    ]
    sys.exit(not print_figures(figures))


def stop_jobs(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for each in open_jobs(client):
            client.post(f"/jobs/{each['id']}/stop", json={}).raise_for_status()
        wait_until(lambda: not open_jobs(client))


if __name__ == "__main__":
    main()
