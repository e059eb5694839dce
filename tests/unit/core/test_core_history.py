"""The history of finished jobs: what it keeps, whom it takes to be alike, and that everybody reads the same."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import pytest
from tests.support import cluster, job

from skep.core import history as module
from skep.core.history import History, Spread
from skep.core.job import Job, JobState
from skep.core.knowledge import Knowledge
from skep.core.needs import Need
from skep.core.snapshot import dump, load
from skep.core.state import State


def ended(number: int, gpus: int, work_s: float, *, user: str = "ann", model: str = "", vc: str = "a") -> Job:
    found = Job(job(gpus, id=f"j{number}", user=user, model=model, vc=vc).spec, number, 0.0)
    found.state, found.work_s, found.run_s = JobState.SUCCEEDED, work_s, work_s
    found.service_gpu_s = work_s * gpus
    return found


def known(jobs: Iterable[Job]) -> Knowledge:
    knowledge = Knowledge()
    for each in jobs:
        knowledge.note_end(each)
        knowledge.note_use(each.spec.vc, each.service_gpu_s)
    return knowledge


JOBS = [
    ended(0, 1, 10.0),
    ended(1, 1, 20.0),
    ended(2, 2, 60.0),
    ended(3, 2, 100.0, user="bob", model="bert"),
    ended(4, 2, 300.0, user="bob", vc="b"),
]


@pytest.mark.parametrize(
    ("asking", "works"),
    [
        pytest.param(ended(9, 2, 0.0, user="bob", model="bert"), [100.0], id="owner, model and size"),
        pytest.param(ended(9, 1, 0.0, model="bert"), [10.0, 20.0], id="owner and size"),
        pytest.param(ended(9, 8, 0.0), [10.0, 20.0, 60.0], id="owner"),
        pytest.param(ended(9, 2, 0.0, user="eve"), [60.0, 100.0, 300.0], id="size"),
        pytest.param(ended(9, 8, 0.0, user="eve"), [10.0, 20.0, 60.0, 100.0, 300.0], id="all"),
    ],
)
def test_those_that_are_the_most_alike_count(asking: Job, works: list[float]) -> None:
    deviation = statistics.stdev(works) if len(works) > 1 else 0.0
    found = known(JOBS).history.like(asking)
    assert found is not None
    assert (found.count, found.mean, found.deviation) == (
        len(works),
        pytest.approx(statistics.mean(works)),
        pytest.approx(deviation),
    )


def test_nothing_is_known_of_anybody_at_first() -> None:
    assert Knowledge().history.like(JOBS[0]) is None


def test_only_jobs_that_succeeded_tell_how_long_their_like_takes() -> None:
    failed = ended(0, 1, 10.0)
    failed.state = JobState.FAILED
    assert known([failed]).history.count == 0


def test_a_vc_sees_its_own_history_and_the_use_of_all() -> None:
    knowledge = known(JOBS)
    part = knowledge.of_vc("b", frozenset(Need)).history
    assert part.like(ended(9, 2, 0.0)) == Spread(1, 300.0, 0.0)
    assert (part.count, knowledge.history.count) == (1, 5)
    assert knowledge.of_vc("new", frozenset(Need)).history.like(JOBS[0]) is None
    assert list(knowledge.vcs) == ["a", "b"]  # looking changes nothing
    assert [knowledge.history.used_by(vc) for vc in ("a", "b", "new")] == [10.0 + 20 + 120 + 200, 600.0, 0.0]


def test_the_latest_count_and_whoever_looks_late_sees_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 4)
    knowledge = Knowledge()
    followed = knowledge.history
    for number in range(23):
        knowledge.note_end(ended(number, 1 + number % 2, float(number)))
        late = History(lambda: knowledge.whole, knowledge.used_by)
        asking = ended(99, 1 + number % 2, 0.0)
        assert late.like(asking) == followed.like(asking)
        assert [each.work_s for each in followed.latest()] == [float(n) for n in range(number + 1)][-4:]
        assert len(knowledge.whole.finished) < 8
    assert [each.work_s for each in followed.finished(20, 22)] == [20.0, 21.0]


def test_a_snapshot_has_it() -> None:
    state = State(cluster("1x4"))
    for each in JOBS:
        state.jobs[each.id] = each
        each.finish_s = float(each.seq)
        state.knowledge.note_request(each)
        state.knowledge.note_end(each)
        state.knowledge.note_use(each.spec.vc, each.service_gpu_s)
    again = load(dump(state), cluster("1x4"))
    assert again.knowledge.saved() == state.knowledge.saved()
