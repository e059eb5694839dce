"""The real service under a policy that fails at random: is anything lost?

    python -m bench.policies [--decisions 10000] [--chance 0.02] [--seed 0]

Jobs start and end at once on an engine without processes. The policy raises, exits, recurses without end or changes
what it should only read, with this chance each time it is asked for a key; then it is chosen again. In the end every
job that was taken must have succeeded with one start, and the log alone must lead to the state.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import msgspec
from tests.support.engines import NoEngine
from tests.support.snapshot import snapshot

from skep.core.actions import Action, Launch, Stop
from skep.core.errors import InputError
from skep.core.reports import Exited, Looked, Report, Started
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.recover import recover
from skep.service.store import JobFilter, Store

POLICY = """
import random
import sys

from skep.policies import Order

chance = sys.__dict__.setdefault("chance of " + __file__, random.Random(SEED))  # goes on when it is read again


class Flaky(Order):
    def attach(self, view):
        self.view = view

    def key(self, job, now_s):
        if chance.random() < CHANCE:
            chance.choice((self.fail, self.leave, self.recurse, self.spoil))()
        return job.seq

    def fail(self):
        raise AttributeError("no such thing")

    def leave(self):
        raise SystemExit(3)

    def recurse(self):
        self.recurse()

    def spoil(self):
        self.view.jobs.clear()
        self.view.cluster.nodes.clear()
"""


class AtOnce(NoEngine):
    """Starts and ends every job at once."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.starts = 0

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        reports: list[Report] = []
        for action in actions:
            if isinstance(action, Launch):
                self.starts += 1
                reports += [Started(action.job_id, action.launch), Exited(action.job_id, action.launch, 0)]
            elif isinstance(action, Stop):
                reports.append(Exited(action.job_id, 0, 143, was_stopped=True))
        self.live.tell(reports)

    def look(self, job_ids: Collection[str]) -> None:
        """After a gap: everything has been told."""
        self.live.tell([Looked()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--chance", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        found = run(Path(folder), options.decisions, options.chance, options.seed)
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(
        f"{found.decisions:,} decisions, {found.failures:,} of them failed; {cpu_s:.1f} s CPU, {seconds:.1f} s in all"
    )
    print(f"{found.taken:,} jobs taken, {found.starts:,} starts, {found.lost} lost")
    print(f"the log leads to the state: {found.is_same}")
    sys.exit(not found.is_good)


class Found(msgspec.Struct):
    decisions: int
    failures: int
    taken: int
    starts: int
    lost: int
    """Jobs that did not succeed with one start."""
    is_same: bool
    """Whether the log alone leads to the state."""

    @property
    def is_good(self) -> bool:
        return not self.lost and self.is_same and self.starts == self.taken


def run(folder: Path, decisions: int, chance: float, seed: int) -> Found:
    file = folder / "flaky.py"
    file.write_text(POLICY.replace("SEED", str(seed)).replace("CHANCE", str(chance)))
    policy = f"{file}:Flaky"
    store = Store(folder / "skep.db")
    live = Live(store, AtOnce, time.time, cluster=("16x8", "16x8"), policy="fifo")
    taken: list[str] = []
    role = TaskRole(count=4, gpus=1, command="true")
    while live.stats()["decisions"] < decisions:
        if live.writer.ground.policy != policy:
            choose(live, policy)
        for _ in range(20):
            taken += live.submit([Request("job", {"task": role}, user="ann")], "ann").result(60)
    live.use_policy("fifo", "root").result(60)
    while any(live.stats()["jobs"].get(state, 0) for state in ("pending", "launching", "running", "stopping")):
        time.sleep(0.01)
    stats = live.stats()
    rows = store.jobs(JobFilter(all=True), len(taken) + 1, None)
    lost = {*taken} - {str(row.seq) for row in rows if row.state == "succeeded" and row.attempts == 1}
    live.close()
    again = Store(folder / "skep.db")
    state, _ = recover(again, from_start=True)
    same = snapshot(state)["jobs"] == snapshot(live.writer.state)["jobs"]
    again.close()
    return Found(stats["decisions"], stats["policy_failures"], len(taken), live.engine.starts, len(lost), same)


def choose(live: Live, policy: str) -> None:
    """It may fail while it is tried: then again."""
    while live.writer.ground.policy != policy:
        try:
            live.use_policy(policy, "root").result(60)
        except InputError:
            continue


if __name__ == "__main__":
    main()
