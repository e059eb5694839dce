"""The dashboard before a large cluster: `python -m bench.dashboard [--minutes 10]`, 10,000 jobs and 1,000 GPUs.

A real `skep up`, 125 running jobs that fill it and the rest waiting; Chromium says itself how long its tasks took, what
came over the wire and how much memory it holds. Exit code 1 when a budget is broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from bench.browser import launch
from bench.scene import Scene, scene, until
from bench.words import number, print_columns, yes_no
from playwright.sync_api import Browser, CDPSession, Page

sys.path.insert(0, str(Path(__file__).parent.parent / "web"))
from build import GZIPPED_MAX, gzipped_size

JOBS, NODES, GPUS = 10_000, 125, 8
CLUSTER = f"name: large\nnodes:\n  - {{count: {NODES}, name: n, gpus: {GPUS}}}\n"
EVENTS_PER_S, BULK = 100, 10
TRACED = ["toplevel", "disabled-by-default-devtools.timeline", "__metadata"]


class Figure(msgspec.Struct):
    what: str
    seen: float
    unit: str
    most: float

    @property
    def is_kept(self) -> bool:
        return self.seen <= self.most


@contextmanager
def large(jobs: int = JOBS) -> Iterator[Scene]:
    with scene(CLUSTER, "fifo:walk=skip") as stage:
        for first in range(0, jobs, 1000):
            batch = [job(first + each) for each in range(min(1000, jobs - first))]
            answer = stage.client.post("/jobs:batch", json={"jobs": batch})
            assert answer.status_code == 201, answer.text
        until(lambda: stage.client.get("/overview").json()["jobs"]["running"] >= NODES, "a full cluster")
        yield stage


def job(number: int) -> dict[str, Any]:
    user = f"user-{number % 37}"
    return {"name": f"job-{number}", "user": user, "tasks": {"w": {"gpus": GPUS, "command": "sleep 86400"}}}


class Stir(threading.Thread):
    """Changes waiting jobs, so that there are so many events a second, and notes how long the API takes meanwhile."""

    def __init__(self, stage: Scene) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.taken_ms: list[float] = []
        self.events = 0
        self.client = httpx.Client(base_url=stage.server.url, timeout=60, trust_env=False)
        self.ids = [
            row["id"] for row in stage.client.get("/jobs", params={"state": "pending", "limit": 1000}).json()["jobs"]
        ]

    def run(self) -> None:
        with self.client:
            self._stir()

    def _stir(self) -> None:
        began_s, turn = time.monotonic(), 0
        while not self.stopping.is_set():
            ids = [self.ids[(turn * BULK + each) % len(self.ids)] for each in range(BULK)]
            # Below what running jobs have: nobody is preempted, and there are no other events than these.
            self.timed("POST", "/jobs:bulk", json={"ids": ids, "action": "priority", "value": turn % 10})
            for path in ("/overview", "/map", "/jobs?limit=200&counts=true", "/jobs?q=job-77"):
                if turn % 5 == 0:
                    self.timed("GET", path)
            turn += 1
            self.events += BULK
            self.stopping.wait(max(0.0, began_s + turn * BULK / EVENTS_PER_S - time.monotonic()))

    def timed(self, method: str, path: str, **more: Any) -> None:
        began_s = time.perf_counter()
        self.client.request(method, path, **more).raise_for_status()
        self.taken_ms.append((time.perf_counter() - began_s) * 1000)

    @property
    def p99_ms(self) -> float:
        return sorted(self.taken_ms)[int(len(self.taken_ms) * 0.99)]


class Sight:
    """One page, and what the browser knows of it."""

    def __init__(self, browser: Browser, stage: Scene) -> None:
        self.browser = browser
        context = browser.new_context(base_url=stage.address, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(120_000)
        self.page: Page = context.new_page()
        self.tools: CDPSession = context.new_cdp_session(self.page)
        self.tools.send("Network.enable")
        self.api: set[str] = set()
        self.received = 0.0
        self.tools.on("Network.responseReceived", self._response)
        self.tools.on("Network.loadingFinished", self._finished)

    def _response(self, said: dict[str, Any]) -> None:
        if "/api/" in said["response"]["url"]:
            self.api.add(said["requestId"])

    def _finished(self, said: dict[str, Any]) -> None:
        if said["requestId"] in self.api:
            self.received += said["encodedDataLength"]

    def open(self, address: str, sign: str) -> float:
        """Milliseconds from the navigation until what is asked for is there and the page answers."""
        self.received = 0.0
        self.page.goto(address, wait_until="commit")
        self.page.locator(sign).first.wait_for()
        return float(self.page.evaluate("new Promise(done => requestAnimationFrame(() => done(performance.now())))"))

    def longest_ms(self, during: Callable[[], object]) -> float:
        """Of the tasks of the page's main thread, by the browser's own tracing: what the longest one took of a
        processor. What else the machine does at the time is no fault of the page."""
        self.browser.start_tracing(page=self.page, categories=TRACED)
        during()
        events = json.loads(self.browser.stop_tracing())["traceEvents"]
        mains = {(e["pid"], e["tid"]) for e in events if e.get("args", {}).get("name") == "CrRendererMain"}
        tasks = [e for e in events if (e["pid"], e["tid"]) in mains and e["name"].endswith("RunTask") and "tdur" in e]
        if not tasks:
            raise RuntimeError("the browser traced no task")
        return float(max(task["tdur"] for task in tasks)) / 1000

    def heap_mb(self) -> float:
        self.tools.send("HeapProfiler.collectGarbage")
        used: int = self.tools.send("Runtime.getHeapUsage")["usedSize"]
        return used / 1e6


def scroll(sight: Sight) -> None:
    sight.page.locator(".jobs").hover()
    for _ in range(60):
        sight.page.mouse.wheel(0, 900)
        sight.page.wait_for_timeout(30)


def point_about(sight: Sight) -> None:
    box = sight.page.locator(".map canvas").bounding_box()
    assert box is not None
    for step in range(60):
        sight.page.mouse.move(box["x"] + box["width"] * step / 60, box["y"] + box["height"] * (step % 10) / 10)
        sight.page.wait_for_timeout(20)
    for words in ("Job", "State", "VC"):
        sight.page.get_by_label("Colour by").first.get_by_text(words, exact=True).click()


def measure(stage: Scene, seconds: float) -> list[Figure]:
    with launch() as browser:
        figures = [Figure("JavaScript, gzipped, all pages", gzipped_size() / 1000, "kB", GZIPPED_MAX / 1000)]
        sight = Sight(browser, stage)
        sight.open("/", ".map canvas")  # Chromium itself warms up
        figures.append(Figure("overview: from the address to its map", sight.open("/", ".map canvas"), "ms", 1500))
        sight.page.wait_for_timeout(2000)
        figures.append(Figure("overview: data of the first page", sight.received / 1000, "kB", 300))
        figures.append(
            Figure("map: longest task, pointing and colouring", sight.longest_ms(lambda: point_about(sight)), "ms", 100)
        )
        figures.append(Figure("jobs: from the address to its rows", sight.open("/jobs", ".jobs tbody tr"), "ms", 1500))
        figures.append(Figure("jobs: data of the first page", sight.received / 1000, "kB", 300))
        figures.append(Figure("jobs: longest task, scrolling", sight.longest_ms(lambda: scroll(sight)), "ms", 100))
        figures.append(Figure("jobs: rows in the page", sight.page.locator(".jobs tbody tr").count(), "", 80))
        figures += under_events(sight, stage, seconds)
    return figures


def under_events(sight: Sight, stage: Scene, seconds: float) -> list[Figure]:
    stir = Stir(stage)
    stir.start()
    sight.open("/", ".map canvas")
    sight.page.wait_for_timeout(5000)
    before_mb = sight.heap_mb()
    longest_ms = sight.longest_ms(lambda: sight.page.wait_for_timeout(seconds * 1000))
    after_mb = sight.heap_mb()
    stir.stopping.set()
    stir.join()
    return [
        Figure(f"overview: longest task in {seconds:g} s of events", longest_ms, "ms", 100),
        Figure(
            f"memory: more after {stir.events:,} events (at first {before_mb:.0f} MB)", after_mb - before_mb, "MB", 10
        ),
        Figure(f"API meanwhile, p99 of {len(stir.taken_ms):,}", stir.p99_ms, "ms", 200),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.5, help="of 100 events a second")
    parser.add_argument("--jobs", type=int, default=JOBS)
    words = parser.parse_args()
    with large(words.jobs) as stage:
        figures = measure(stage, words.minutes * 60)
    table = [["what", "seen", "at most", "unit", "kept"]]
    table += [[f.what, number(f.seen, 0), number(f.most, 0), f.unit, yes_no(f.is_kept)] for f in figures]
    print_columns(table)
    sys.exit(not all(figure.is_kept for figure in figures))


if __name__ == "__main__":
    main()
