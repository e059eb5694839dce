"""How many files does a job cross between its POST and its process? `python -m bench.path` lists them.

A server and its local engine run in this process under a profiler. It counts the files of Skep in which a function was
called, by thread, from the request until the server knows that the job's command runs. Three jobs go through one after
another; a file counts if all three crossed it in the same thread, so that neither the first use of a cache nor a check
that happened to be due is counted. Each file is a hop for a reader of how jobs start; more than `FILES_MAX` fail.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

import httpx
from bench.load import wait_until

import skep
from skep.server.config import Config
from skep.server.run import serve

FILES_MAX = 75
JOBS = 3
REPORTED_S = 0.4
"""How long the report that the process runs takes to arrive, at most."""
PERIODIC = {"history", "tidy", "skep-local-upkeep", "skep-local-pack"}
"""Threads that work from time to time, whether or not a job was submitted."""
UP = "skep is up at "
SOURCE = os.path.dirname(os.path.abspath(skep.__file__)) + os.sep

Crossed = dict[str, set[str]]
"""The threads that called a function of each file."""


class Profiler:
    """Records calls in files of Skep while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.crossed: Crossed = defaultdict(set)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if self.is_on and event == "call" and path.startswith(SOURCE) and is_begun(frame):
            self.crossed[path].add(threading.current_thread().name)

    def take(self) -> Crossed:
        self.is_on = False
        crossed, self.crossed = self.crossed, defaultdict(set)
        return crossed


def is_begun(frame: FrameType) -> bool:
    """False for the import of a module, and for a coroutine that continues, which is also a "call" for the profiler:
    the argument of its RESUME instruction is not 0. The server's own loop would otherwise be on every path."""
    return frame.f_code.co_name != "<module>" and frame.f_code.co_code[frame.f_lasti + 1] == 0


def submit(url: str, mark: Path, profiler: Profiler) -> Crossed:
    """Run one job on the idle server, and wait until it has ended and the server is idle again."""
    with httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
        job = {"name": "hop", "tasks": {"w": {"gpus": 1, "command": f"touch {mark}; sleep 1"}}}
        profiler.is_on = True
        job_id = client.post("/jobs", json=job).raise_for_status().json()["id"]
        wait_until(mark.exists)
        time.sleep(REPORTED_S)
        crossed = profiler.take()
        mark.unlink()
        wait_until(lambda: client.get(f"/jobs/{job_id}").json()["state"] == "succeeded")
    time.sleep(0.2)
    return crossed


def cross() -> Crossed:
    """The files that every one of the jobs crossed."""
    profiler, found = Profiler(), list[Crossed]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def client() -> None:
            sys.setprofile(None)
            try:
                wait_until(lambda: any(line.startswith(UP) for line in said))
                [url] = [line.removeprefix(UP).split()[0] for line in said if line.startswith(UP)]
                found.extend(submit(url, folder / "mark", profiler) for _ in range(JOBS))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        said: list[str] = []
        threading.setprofile(profiler)
        sys.setprofile(profiler)
        threading.Thread(target=client).start()
        try:
            serve(Config(cluster="1x1", policy="fifo", data=folder / "data", port=0, run_as="server"), said.append)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    in_all = {path: set.intersection(*(each[path] for each in found)) - PERIODIC for path in found[0]}
    return {path: threads for path, threads in in_all.items() if threads}


def main() -> None:
    crossed = cross()
    for path, threads in sorted(crossed.items()):
        print(f"{path.removeprefix(SOURCE):36} {', '.join(sorted(threads))}")
    threads = {thread for several in crossed.values() for thread in several}
    print(f"{len(crossed)} files (at most {FILES_MAX}), {len(threads)} threads")
    sys.exit(len(crossed) > FILES_MAX)


if __name__ == "__main__":
    main()
