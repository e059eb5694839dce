"""Jobs that have ended leave the state as rows, and the results are the same."""

from __future__ import annotations

import random

import msgspec
import pytest

import skep
from skep.experiments.output import jobs_csv
from skep.metrics import ended
from skep.metrics.run import Summary

DRAW = random.Random(5)
ROWS = [
    {
        "job_id": f"j{number}",
        "submit_s": 20 * number + DRAW.randrange(20),
        "duration_s": DRAW.choice((5, 60, 900)),
        "gpus": DRAW.choice((1, 1, 2, 4, 9)),
        "user": f"u{number % 5}",
        "deadline_s": 300,
    }
    for number in range(300)
]
MEASURED = ("wall_s", "events_per_s", "decision_avg_ms", "decision_p99_ms")


def compared(summary: Summary) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(summary).items() if name not in MEASURED}


@pytest.mark.parametrize("policy", ["fifo:walk=skip", "srsf", "tiresias-g", "qssf", "drf", "yarn-cs"])
def test_the_results_are_those_of_jobs_that_stay(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = skep.simulate(ROWS, cluster="1x8", policy=policy, failures="mtbf=9000,repair=60")
    monkeypatch.setattr(ended, "BATCH", 8)
    told: list[int] = []
    advance = ended.JobTally._add
    monkeypatch.setattr(ended.JobTally, "_add", lambda self, jobs: (told.append(len(jobs)), advance(self, jobs))[1])
    let_go = skep.simulate(ROWS, cluster="1x8", policy=policy, failures="mtbf=9000,repair=60")
    assert len(told) > 5
    assert jobs_csv(kept.run.rows) == jobs_csv(let_go.run.rows)
    assert compared(let_go.summary) == pytest.approx(compared(kept.summary), nan_ok=True)
    assert kept.run.unrunnable == let_go.run.unrunnable
    assert len(kept.run.unrunnable) > 10


def test_jobs_that_others_need_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "BATCH", 1)
    chain = [row | {"needs": f"j{number - 1}" if number % 3 else ""} for number, row in enumerate(ROWS)]
    run = skep.simulate(chain, cluster="2x8", policy="fifo")
    assert run.summary.finished + run.summary.unrunnable == 300
