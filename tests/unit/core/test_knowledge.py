"""What planners know of speeds: by model, GPU type, count and neighbours, each with its spread; else nothing."""

from __future__ import annotations

import pytest

from skep.core import knowledge as module
from skep.core.history import Spread
from skep.core.job import Job
from skep.core.knowledge import Knowledge, SpeedKey
from skep.core.model import JobSpec, Shape
from skep.core.progress import Report
from skep.testing import job as trace_job

JOB = Job(trace_job(2, id="a", model="bert").spec, 0, 0.0)
ALONE = SpeedKey("bert", "v100", 2)
BESIDE = SpeedKey("bert", "v100", 2, ("gpt",))


class Profile:
    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: object = ()) -> float | None:
        return 0.5

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        return 8.0 if model == "bert" else None


def reported(known: Knowledge, place: SpeedKey | None, *speeds: float) -> None:
    for number, speed in enumerate(speeds):
        known.note_report(60.0 * number, JOB, Report(10.0 * number, steps_per_s=speed), place)


def test_nothing_is_known_at_first() -> None:
    known = Knowledge()
    assert known.throughput("bert", "v100", 2) is None
    assert known.rate(JOB.spec, JOB.spec.shapes[0], "v100") is None
    assert known.history.like(JOB) is None
    assert known.progress == {}


def test_a_profile_is_one_figure_without_a_spread_and_says_nothing_of_neighbours() -> None:
    known = Knowledge(Profile())
    assert known.throughput("bert", "v100", 2) == Spread(1, 8.0, 0.0)
    assert known.throughput("bert", "v100", 2, ("gpt",)) is None


def test_what_jobs_report_goes_before_it_in_each_place_by_itself() -> None:
    known = Knowledge(Profile())
    reported(known, ALONE, 10.0, 12.0)
    reported(known, BESIDE, 6.0)
    assert known.throughput("bert", "v100", 2) == Spread(2, 11.0, pytest.approx(2.0**0.5))
    assert known.throughput("bert", "v100", 2, ("gpt",)) == Spread(1, 6.0, 0.0)
    assert known.throughput("bert", "k80", 2) == Spread(1, 8.0, 0.0)


def test_a_job_without_a_model_teaches_nothing_about_others() -> None:
    known = Knowledge()
    reported(known, None, 10.0)
    assert not known.speeds
    assert known.progress["a"].speed == Spread(1, 10.0, 0.0)


def test_only_so_many_places_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    known = Knowledge()
    for gpus in (1, 2, 3):
        reported(known, SpeedKey("bert", "v100", gpus), 10.0)
    assert [place.gpus for place in known.speeds] == [2, 3]
