"""How long a server takes to begin again on a long log: `python bench/restart.py [EVENTS]`.

The log is written by the service itself (with an engine that only says yes), so that it holds what a year of use would
leave there. Prints the time to recover from the last snapshot, and beside it the time to fold the whole log.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.support.engines import NoEngine

from skep.core.actions import Action, Launch
from skep.core.events import ClusterChanged, PolicyChanged
from skep.core.reports import Exited, Looked, Report, Started
from skep.jobs.request import Request, TaskRole
from skep.service import commands
from skep.service.recover import recover
from skep.service.store import Store
from skep.service.turn import Command
from skep.service.writer import Writer

BUDGET_S = 5.0
BATCH = 64


class YesEngine(NoEngine):
    """Every launch starts at once and has ended when somebody looks again."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Launch):
                self.reports += [Started(action.job_id, action.launch), Exited(action.job_id, action.launch, 0)]

    def look(self, job_ids: Collection[str]) -> None:
        self.reports.append(Looked())


def write_log(folder: Path, events: int) -> None:
    store = Store(folder / "skep.db")
    store.db.execute("PRAGMA synchronous=OFF")  # the log is made for reading
    writer = Writer(store, 0.0, opening=(ClusterChanged("bench", "8x8"), PolicyChanged("tiresias-l")))
    engine = YesEngine()
    writer.start(engine)
    request = Request("job", {"task": TaskRole(gpus=1, command="true")}, user="ann")
    now_s = 0.0
    while writer.state.event_count < events:
        now_s += 10.0
        future: Future[Any] = Future()
        reports, engine.reports = engine.reports, []
        writer.turn([Command(commands.submit([request] * BATCH, "ann", ""), future)], reports, now_s)
        if sys.stderr.isatty():
            print(f"\r{writer.state.event_count:,} of {events:,} events", end="", file=sys.stderr)
    store.close()


def timed(store: Store, *, from_start: bool) -> float:
    began_s = time.process_time()
    recover(store, from_start=from_start)
    return time.process_time() - began_s


def main() -> None:
    events = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder, events)
        began_s = time.process_time()
        store = Store(folder / "skep.db")
        writer = Writer(store, 0.0)
        writer.start(YesEngine())
        restart_s = time.process_time() - began_s
        whole_s = timed(store, from_start=True)
        size = (folder / "skep.db").stat().st_size / 2**20
        store.close()
    print(f"\n{events:,} events, {size:,.0f} MiB")
    print(f"begin again: {restart_s:.2f} s CPU (budget {BUDGET_S:g} s); the whole log folded: {whole_s:.2f} s")
    print(f"ratio to the whole log: {restart_s / whole_s:.3f}")
    sys.exit(restart_s > BUDGET_S)


if __name__ == "__main__":
    main()
