"""Jobs by virtual cluster and size, waiting by cause, and the best of a column."""

from __future__ import annotations

import pytest
from report_runs import make_row, waiting_row

from skep.report.columns import best_of
from skep.report.groups import GroupTally, GroupWaiting, by_size, by_vc, size_name, tally_rows, waiting_by_cause
from skep.report.units import format_duration


def test_tallies_by_vc_and_by_size() -> None:
    rows = [
        make_row("a", vc="vision", gpus=1.0, jct_s=10.0, queue_s=4.0, service_gpu_s=6.0),
        make_row("b", vc="vision", gpus=8.0, jct_s=20.0, queue_s=5.0, service_gpu_s=120.0),
        make_row("c", vc="speech", gpus=1.0, jct_s=30.0, queue_s=0.0, service_gpu_s=30.0),
        waiting_row("d"),
    ]
    tallies = tally_rows(rows)
    vision = by_vc(tallies)["vision"]
    assert vision == GroupTally(jobs=2, finished=2, jct_sum_s=30.0, queue_sum_s=9.0, service_gpu_s=126.0)
    assert (vision.jct_avg_s, vision.queue_avg_s) == (15.0, 4.5)
    assert by_vc(tallies)["default"].jct_avg_s is None
    assert {size_name(size): tally.jobs for size, tally in by_size(tallies).items()} == {"1": 3, "5 to 8": 1}


@pytest.mark.parametrize(
    ("gpus", "name"),
    [
        (0.0, "none"),
        (0.25, "less than 1"),
        (1.0, "1"),
        (2.0, "2"),
        (3.0, "3 to 4"),
        (16.0, "9 to 16"),
        (65.0, "more than 64"),
    ],
)
def test_a_job_belongs_to_one_size(gpus: float, name: str) -> None:
    (size,) = by_size(tally_rows([make_row(gpus=gpus)]))
    assert size_name(size) == name


def test_waiting_is_split_over_finished_jobs_only() -> None:
    rows = [
        make_row("a", queue_s=100.0, queue_quota_s=30.0, queue_fragmentation_s=20.0),
        make_row("b", queue_s=0.0),
        waiting_row("c"),
    ]
    waiting = waiting_by_cause(tally_rows(rows))
    assert waiting == GroupWaiting(quota_s=15.0, fragmentation_s=10.0, other_s=25.0)
    assert waiting.total_s == 50.0
    assert waiting_by_cause(tally_rows([waiting_row("c")])) is None


@pytest.mark.parametrize(
    ("values", "better", "best"),
    [
        ([3.0, 1.0, 2.0], "low", {1}),
        ([3.0, 1.0, 3.0], "high", {0, 2}),
        ([None, 5.0, 9.0], "low", {1}),
        ([3600.0, 3601.0, 9000.0], "low", {0, 1}),
        ([3600.0, 3601.0], "low", set()),
        ([5.0], "low", set()),
        ([None, None], "high", set()),
    ],
    ids=[
        "the lowest",
        "the highest, twice",
        "no value is never best",
        "what reads the same is as good",
        "all read the same",
        "nothing to choose between",
        "nothing known",
    ],
)
def test_the_best_of_a_column(values: list[float | None], better: str, best: set[int]) -> None:
    assert best_of(values, better, format_duration) == best
