"""A second decision at one instant tries only what is new, and counting spares whom trying would spare."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support import job
from tests.unit.policies.begun import begun

from skep.policies import room
from skep.policies.rising import Rising


def test_when_a_preempted_job_returns_behind_others_nothing_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 30 the first job is a lead ahead of the second, which takes over; the third is still before the first."""
    jobs = [job(1, work=200.0, at=at, id=f"job-{number}") for number, at in enumerate((0.0, 10.0, 10.0))]
    course, planner = begun("las:lead=30,place=any", *jobs, on="1x1", steps=0)
    searches, search = list[float](), Rising.search

    def searched(*given: Any) -> float:
        searches.append(given[-1])
        return search(*given)

    monkeypatch.setattr(Rising, "search", searched)
    while course.state.now_s < 31.0 and not planner.running.crossings.is_settled:
        course.advance()
    assert course.state.now_s == 30.0
    assert course.state.jobs["job-0"].seq in planner.pending.entries
    assert searches.count(30.0) == 1
    assert planner.running.crossings.known_s() == 60.0


@pytest.mark.parametrize("policy", ["las:lead=50,place=any", "las:lead=5,place=random"])
def test_counting_spares_whom_trying_spares(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(1)
    jobs = [
        job(drawn.choice([1, 1, 2, 3, 5]), work=drawn.choice([30.0, 300.0]), at=10.0 * number, id=f"job-{number}")
        for number in range(150)
    ]

    def outcome() -> str:
        course, _ = begun(policy, *jobs, on="2x4", steps=0)
        course.finish()
        return course.csv()

    spared, count = list[bool](), room.spare_by_count

    def noted(*given: Any) -> room.Room | None:
        found = count(*given)
        spared.append(found is not None)
        return found

    monkeypatch.setattr(room, "spare_by_count", noted)
    counted = outcome()
    assert any(spared)
    monkeypatch.setattr(room, "spare_by_count", lambda *given: None)
    assert outcome() == counted
