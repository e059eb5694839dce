"""One scheduler, two worlds: what was decided for real processes is what the simulator's loop decides on the record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.kube_live import kube_service
from tests.support.kube_plane import ControlPlane

from skep.core.actions import Action, Launch
from skep.core.cluster import Cluster
from skep.core.events import Batch, Event
from skep.core.record import Entry, decode
from skep.core.state import State
from skep.core.step import PlannerChange, Scheduler
from skep.engines.local.engine import LocalEngine
from skep.jobs.request import Elastic, OfShare, Request, TaskRole
from skep.policies.idle import Idle
from skep.service.live import Live
from skep.service.loop import run
from skep.service.planning import Ground
from skep.service.recover import recompute
from skep.service.store import JobFilter, Store

POLICIES = (
    "fifo",
    "fifo:walk=skip",
    "srtf",
    "las:lead=0.2",
    "tiresias-l:queues=1+3",
    "drf",
    "yarn-cs:patience=0.3+0.6",
    "afs-l",
    "singularity:restart=0,premium=0.999",
)

PLAIN_POLICIES = ("fifo:walk=skip", "srtf", "tiresias-l:queues=1+3", "drf", "yarn-cs:patience=0.3+0.6")
"""They need neither suspension nor sharing."""

SLEEP = """
for part in $(seq {parts}); do
  done=$SKEP_CHECKPOINT_DIR/$SKEP_TASK_INDEX.$part
  [ -e $done ] || {{ sleep 0.05; touch $done; }}
done
"""
"""It goes on where it was: jobs that begin anew after each preemption might push each other out for ever."""


class Recorded:
    """The engine whose events are known: it says what happened when, and notes what it is asked to launch."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = iter(entries)
        self.launched: list[Launch] = []

    def observe(self, until_s: float) -> Batch | None:
        entry = next(self.entries, None)
        return None if entry is None else Batch(entry.at_s, entry.events)

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        self.launched += [action for action in actions if isinstance(action, Launch)]
        return []


@pytest.fixture
def live(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Live]:
    service = Live(
        Store(tmp_path / "skep.db"),
        lambda live: LocalEngine(tmp_path, live.writer.state.cluster, live.request_of, live.tell),
        time.time,
        cluster=("test", "2x2"),
        policy=request.param,
    )
    yield service
    service.close()


@pytest.fixture
def kube_live(plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Live]:
    """The same on a real API server with hollow kubelets."""
    with kube_service(plane, tmp_path, request.param) as service:
        yield service


def sleeper(number: int) -> Request:
    seconds, gpus = 0.2 + number * 7 % 5 * 0.25, (1, 2, 1, 4)[number % 4]
    role = TaskRole(count=gpus, gpus=1, command=SLEEP.format(parts=round(seconds / 0.05)))
    elastic = Elastic("w", 1, 4) if number % 3 == 0 else None
    user = ("ann", "bob")[number % 2]
    share = OfShare(tier="premium") if number == 3 else None  # of an hour it may wait for 3.6 s
    return Request(
        f"job{number}", {"w": role}, user=user, vc=user, expect_s=seconds, elastic=elastic, grace_s=2, share=share
    )


@pytest.mark.slow
@pytest.mark.parametrize("live", POLICIES, indirect=True)
def test_the_simulator_decides_as_the_live_world_did(live: Live) -> None:
    compare(live, [sleeper(number) for number in range(10)])


@pytest.mark.slow
@pytest.mark.parametrize("kube_live", PLAIN_POLICIES, indirect=True)
def test_the_simulator_decides_as_the_world_of_pods_did(kube_live: Live) -> None:
    compare(kube_live, [msgspec.structs.replace(sleeper(number), share=None) for number in range(10)])


def compare(live: Live, requests: list[Request]) -> None:
    for each in requests:
        live.submit([each], "ann").result(60)
        time.sleep(0.12)
    end_s = time.monotonic() + 240
    while live.jobs(JobFilter(), 1, None)[0]:
        assert time.monotonic() < end_s, live.jobs(JobFilter(), 20, None)
        time.sleep(0.05)
    assert all(job["state"] == "succeeded" for job in live.jobs(JobFilter(all=True), 100, None)[0])
    entries = [decode(row[0]) for row in live.store.reader.execute("SELECT entry FROM log ORDER BY seq")]
    assert recompute(entries) == []

    opening, *following = entries
    ground = Ground()
    ground.follow(opening.events)
    scheduler = Scheduler(State(Cluster([], "")), Idle())
    scheduler.step(opening.at_s, opening.events, PlannerChange(ground.planner))
    again = Recorded(following)
    run(scheduler, again)
    assert started(again) == lived(live)
    assert len(again.launched) >= 10


def started(again: Recorded) -> set[tuple[str, int, tuple[str, ...]]]:
    return {
        (action.job_id, action.launch, tuple(f"n{node}" for node in action.allocation.nodes()))
        for action in again.launched
    }


def lived(live: Live) -> set[tuple[str, int, tuple[str, ...]]]:
    jobs = live.jobs(JobFilter(all=True), 100, None)[0]
    attempts = [attempt for job in jobs for attempt in live.store.attempts(int(job["id"]))]
    moved = {(before.job, before.launch + 1) for before in attempts if before.outcome in ("moved", "resized")}
    return {(str(each.job), each.launch, each.nodes) for each in attempts if (each.job, each.launch) not in moved}
