"""What progress reports cost a server: `python -m bench.progress [--jobs 1000] [--seconds 60]`.

A server in this process, with its log on the disk and an engine that starts everything at once, runs 1,000 jobs. Every
job reports its step and loss once a second, and the engine tells of all reports together, as the local one does.
Meanwhile one client after the other submits a job and waits for the acknowledgement, 20 a second. The same without
reports, before and after, is the baseline. Exit code 1 when a budget of the docs is broken.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.load import Figure, print_figures
from bench.words import machine
from tests.support.engines import FakeEngine

from skep.clusters.read import read_text
from skep.core.events import ProgressReported
from skep.core.record import decode
from skep.core.reports import Progressed, Report
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.store import Store

SUBMIT_EVERY_S = 0.05
WARM_S = 61.0
"""Until every job has begun to report, one after the other, so that they are not logged in the same second."""
RATIO_MOST = 1.5
"""Of the p99; two runs without reports differ by up to a third on a machine that others use."""


def request(name: str) -> Request:
    return Request(name=name, tasks={"task": TaskRole(gpus=1, command="true")}, user="bench")


class Jobs:
    """The running jobs, which report once a second."""

    def __init__(self, live: Live, engine: FakeEngine, ids: list[str]) -> None:
        self.live = live
        self.engine = engine
        self.ids = ids
        self.begins_s = {job_id: (number * 37) % 60 for number, job_id in enumerate(ids)}
        self.rate = {job_id: 2.0 + number % 50 for number, job_id in enumerate(ids)}
        self.late_s = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Jobs:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _report(self) -> None:
        began_s, second = time.monotonic(), 0
        while not self._done.wait(max(began_s + second - time.monotonic(), 0.0)):
            self.late_s = max(self.late_s, time.monotonic() - began_s - second)
            self.engine.tell([self._said(job_id, second) for job_id in self.ids if self.begins_s[job_id] <= second])
            second += 1

    def _said(self, job_id: str, second: int) -> Report:
        passed_s = second - self.begins_s[job_id]
        jitter = 1.0 + (hash((job_id, second)) % 41 - 20) / 1000
        step = int(self.rate[job_id] * (passed_s + jitter))
        return Progressed(job_id, 1, {"step": step, "steps": 1_000_000, "loss": 5.0 / (1 + passed_s)})


def submissions(live: Live, seconds: float, name: str) -> list[float]:
    """Seconds until each of them was acknowledged. Jobs that have been are stopped again, so that none pile up."""
    taken_s: list[float] = []
    end_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < end_s:
        (job_id,) = live.submit([request(f"{name}-{len(taken_s)}")], "bench").result(60)
        taken_s.append(time.monotonic() - began_s)
        live.stop(job_id, "bench").result(60)
        time.sleep(max(began_s + SUBMIT_EVERY_S - time.monotonic(), 0.0))
    return taken_s


def p99_ms(taken_s: list[float]) -> float:
    return statistics.quantiles(taken_s, n=100)[98] * 1000


def run(folder: Path, count: int, seconds: float) -> list[Figure]:
    nodes = -(-count // 8)
    text = f"{nodes}x8"
    store = Store(folder / "skep.sqlite")
    engines: list[FakeEngine] = []

    def make_engine(live: Live) -> FakeEngine:
        engines.append(FakeEngine(live.tell, read_text(text, text)[0]))
        return engines[0]

    live = Live(store, make_engine, time.time, cluster=(text, text), policy="fifo")
    try:
        ids = live.submit([request(f"long-{number}") for number in range(count)], "bench").result(300)
        while live.writer.jobs_by_state().get("running", 0) < count:
            time.sleep(0.1)
        submissions(live, 3.0, "warm")
        before = submissions(live, seconds / 2, "before")
        with Jobs(live, engines[0], ids) as jobs:
            submissions(live, WARM_S, "begin")
            first = store.log_seq
            began_s = time.monotonic()
            meanwhile = submissions(live, seconds, "meanwhile")
            lasted_s = time.monotonic() - began_s
            last = store.log_seq
        time.sleep(1.0)
        after = submissions(live, seconds / 2, "after")
    finally:
        live.close(snapshot=False)
    return figures([*before, *after], meanwhile, progress_of(folder, first, last), lasted_s, jobs.late_s)


def progress_of(folder: Path, first: int, last: int) -> tuple[int, int]:
    """Entries of the log that tell of progress, and such events."""
    store = Store(folder / "skep.sqlite")
    try:
        told = [
            sum(isinstance(event, ProgressReported) for event in decode(data).events)
            for number, data in enumerate(store.entries(), start=1)
            if first < number <= last
        ]
    finally:
        store.close()
    return sum(map(bool, told)), sum(told)


def figures(
    alone: list[float], meanwhile: list[float], progress: tuple[int, int], lasted_s: float, late_s: float
) -> list[Figure]:
    entries, events = progress
    ratio = p99_ms(meanwhile) / p99_ms(alone)
    return [
        Figure("log entries with progress, a second", entries / lasted_s, "", 20),
        Figure("progress events in them, a second", events / lasted_s, "", 20),
        Figure(f"acknowledged alone, p50 of {len(alone):,}", statistics.median(alone) * 1000, "ms"),
        Figure(f"acknowledged beside reports, p50 of {len(meanwhile):,}", statistics.median(meanwhile) * 1000, "ms"),
        Figure("acknowledged alone, p99", p99_ms(alone), "ms"),
        Figure("acknowledged beside reports, p99", p99_ms(meanwhile), "ms"),
        Figure("ratio of the p99", ratio, "", RATIO_MOST),
        Figure("reports came late by at most", late_s, "s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="running jobs, each with one report a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long reports and submissions are measured")
    asked = parser.parse_args()
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, Python {here['python']}, load {here['load']:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        is_kept = print_figures(run(Path(folder), asked.jobs, asked.seconds))
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
