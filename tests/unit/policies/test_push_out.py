"""Pushing out: who goes first when keys have fallen, and that it does not cost a look at everybody who runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import cluster, job, trace

from skep.core import orders
from skep.core.job import Job, JobState
from skep.core.state import State
from skep.core.view import JobView
from skep.experiments.simulate import Experiment, Options
from skep.policies.adjust.preempt import Preempt
from skep.policies.crossings import NoCrossings
from skep.policies.estimate.duration import Duration
from skep.policies.lines import Pending
from skep.policies.order.simple import Fifo, Remaining
from skep.policies.running import Running


class Fallen(Remaining):
    """Keys as a test sets them."""

    def __init__(self, keys: dict[int, float]) -> None:
        super().__init__(Duration())
        self.keys = keys

    def key(self, job: JobView, now_s: float) -> float:
        return self.keys[job.seq]


RUNNING = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12)
"""(how low the priority is, the key now, how far it has fallen, whether it runs) of each job."""


@given(RUNNING, st.lists(st.integers(0, 3), max_size=4), st.tuples(st.integers(0, 2), st.integers(0, 9)))
def test_the_last_by_present_key_is_named_first(
    jobs: list[tuple[int, int, int, bool]], falls: list[int], asking: tuple[int, int]
) -> None:
    view, running = State(cluster("1x1")), Running(NoCrossings(Pending()))
    keys = {seq: float(key + fallen) for seq, (_, key, fallen, _) in enumerate(jobs)}
    order = Fallen(keys)
    for seq, (low, _, _, runs) in enumerate(jobs):
        made = Job(job(id=f"j{seq}", priority=-low).spec, seq, 0.0)
        made.state = JobState.RUNNING if runs else JobState.LAUNCHING
        running.add((made.rank, keys[seq], seq, made))
    pending = Job(job(id="asking", priority=-asking[0]).spec, 99, 0.0)
    entry = (pending.rank, float(asking[1]), pending.seq, pending)
    for seq, (_, key, _, _) in enumerate(jobs):
        keys[seq] = float(key)
    for fall in (0, *falls):  # asked again when they have fallen further, from where it left them
        for seq in keys:
            keys[seq] -= fall * (seq % 2)
        now = [(each.rank, keys[seq], seq) for seq, (_, _, _, each) in running.by_seq.items()]
        beyond = sorted((each for each in now if each > entry[:3] and jobs[each[2]][3]), reverse=True)
        named = Preempt().candidates(view, order, running, entry)
        assert [each.seq for each in named] == [seq for _, _, seq in beyond]


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[int]:
    """Calls of a function from now on."""
    calls, real = [0], getattr(where, name)

    def wrapped(*given: Any) -> Any:
        calls[0] += 1
        return real(*given)

    monkeypatch.setattr(where, name, wrapped)
    return calls


@pytest.mark.parametrize("gap_s", [0.0, 1.0])
@pytest.mark.parametrize(
    ("policy", "where", "name"),
    [("srsf", Remaining, "key"), ("fifo", Fifo, "key"), ("srsf", orders, "overlaps"), ("fifo", orders, "overlaps")],
)
def test_twice_as_many_cost_about_twice_as_much(
    policy: str, where: Any, name: str, gap_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, where, name)
    costs = []
    for jobs in (40, 80):
        low = [job(id=f"low{n}", work=5000 + 7 * n, priority=-1) for n in range(jobs)]
        high = [job(id=f"high{n}", at=1000 + n * gap_s, work=500, priority=1) for n in range(jobs)]
        calls[0] = 0
        run = Experiment(trace(*low, *high), cluster(f"{jobs // 8}x8"), Options(), None, None).run(policy)
        assert run.summary.preemptions == jobs
        costs.append(calls[0])
    assert costs[1] <= 2.5 * costs[0]
