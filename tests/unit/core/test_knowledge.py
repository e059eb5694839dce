"""What planners know of speeds: by model, GPU type, count and neighbours, each with its spread; else nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cluster
from tests.support import job as trace_job

from skep.core import knowledge as module
from skep.core.allocation import Allocation, Slice
from skep.core.history import Spread
from skep.core.job import Job
from skep.core.knowledge import Knowledge, SpeedKey, place_of
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.core.progress import Report
from skep.core.standstill import Standstills

JOB = Job(trace_job(2, id="a", model="bert").spec, 0, 0.0)
ALONE = SpeedKey("bert", "v100", 2)
BESIDE = SpeedKey("bert", "v100", 2, ("gpt",))


def gpus(node: int, mask: int, **terms: Any) -> Slice:
    return Slice(node, mask, tasks=mask.bit_count(), **terms)


class Profile:
    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: object = ()) -> float | None:
        return 0.5

    standstills = Standstills(None)

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


def rate(known: Knowledge, gpus: int, *beside: str, gpu_type: str = "v100") -> float | None:
    others = [trace_job(1, id=model, model=model).spec for model in beside]
    return known.rate(JOB.spec, gpu_shape(gpus), gpu_type, others)


def test_a_rate_is_a_reported_speed_relative_to_that_of_the_requested_size() -> None:
    known = Knowledge()
    reported(known, SpeedKey("bert", "v100", 4), 18.0)
    assert rate(known, 4) is None  # no job has shown the reference yet
    reported(known, ALONE, 10.0)
    reported(known, BESIDE, 7.0)
    assert (rate(known, 4), rate(known, 2), rate(known, 2, "gpt")) == (1.8, 1.0, 0.7)
    assert rate(known, 8) is None
    assert rate(known, 2, "vgg") is None
    assert rate(known, 4, gpu_type="k80") is None


def test_a_profile_decides_the_rate_where_it_knows_one() -> None:
    known = Knowledge(Profile())
    reported(known, ALONE, 10.0)
    assert rate(known, 2) == 0.5


def test_a_rate_changes_when_the_mean_speed_has_changed_by_a_tenth() -> None:
    known = Knowledge()
    reported(known, ALONE, 10.0)
    reported(known, SpeedKey("bert", "v100", 4), 20.0, 21.0)
    version = known.speed_version
    assert rate(known, 4) == 2.0
    reported(known, SpeedKey("bert", "v100", 4), 28.0)
    assert known.speed_version == version + 1
    assert rate(known, 4) == pytest.approx(2.3)


PLACES = {
    "alone": ([gpus(0, 0b11)], SpeedKey("bert", "v100", 2)),
    "on more nodes than needed": ([gpus(0, 0b1), gpus(1, 0b1)], None),
    "larger than a node": ([gpus(0, 0b1111), gpus(1, 0b11)], SpeedKey("bert", "v100", 6)),
    "on two types": ([gpus(0, 0b1111), gpus(2, 0b11)], None),
    "packed": ([gpus(0, 0b11, milli=0, limit=1000, mode="pack")], SpeedKey("bert", "v100", 2)),
    "with a part of the time": ([gpus(0, 0b11, milli=500, limit=1000, mode="token")], None),
}


@pytest.mark.parametrize(("slices", "expected"), PLACES.values(), ids=PLACES)
def test_a_speed_is_kept_where_it_depends_on_nothing_but_the_key(
    slices: list[Slice], expected: SpeedKey | None
) -> None:
    where = cluster("2x4:v100+1x4:k80")
    job = Job(JOB.spec, 0, 0.0)
    job.held = Allocation(tuple(slices), float(sum(each.gpus.bit_count() for each in slices)))
    assert place_of(job, {0: job}, where) == expected


def test_a_neighbour_without_a_model_tells_nothing() -> None:
    where = cluster("1x1:v100")
    jobs = [Job(trace_job(1, id=f"{n}", model=model).spec, n, 0.0) for n, model in enumerate(("bert", ""))]
    for each in jobs:
        each.held = Allocation((gpus(0, 0b1, milli=0, limit=1000, mode="pack"),), 1.0)
        where.take(each.held, each.seq)
    assert place_of(jobs[0], dict(enumerate(jobs)), where) is None


def test_only_so_many_places_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    known = Knowledge()
    for gpus in (1, 2, 3):
        reported(known, SpeedKey("bert", "v100", gpus), 10.0)
    assert [place.gpus for place in known.speeds] == [2, 3]


def test_the_reference_of_a_job_for_any_type_is_the_fastest() -> None:
    known = Knowledge()
    reported(known, SpeedKey("bert", "k80", 2), 4.0)
    assert rate(known, 2, gpu_type="k80") == 1.0  # nothing else is known yet
    reported(known, ALONE, 10.0)
    assert (rate(known, 2), rate(known, 2, gpu_type="k80")) == (1.0, 0.4)
    named = trace_job(2, id="b", model="bert", gpu_type="k80").spec
    assert known.rate(named, gpu_shape(2), "v100") == 2.5
