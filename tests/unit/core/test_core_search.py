"""Rungs and results of a trial."""

from __future__ import annotations

import math

from skep.core.progress import Report
from skep.core.search import SearchSpec, Trial

ASHA = SearchSpec("loss", rule="asha", first=10.0, eta=3.0)


def report(step: float, steps: float | None = 100.0, diverged: tuple[str, ...] = (), **series: float) -> Report:
    return Report(step, steps, series=series, diverged=diverged)


def test_rungs_grow_by_eta_and_those_of_the_median_rule_are_equally_far_apart() -> None:
    assert [ASHA.rung(number) for number in range(4)] == [10.0, 30.0, 90.0, 270.0]
    median = SearchSpec("loss", rule="median", first=10.0)
    assert [median.rung(number) for number in range(3)] == [10.0, 20.0, 30.0]


def test_the_first_report_with_the_metric_at_a_rung_is_its_result() -> None:
    trial = Trial()
    for each in (report(9, loss=5.0), report(11), report(12, loss=4.0), report(13, loss=3.0)):
        trial.take_in(ASHA, each)
    assert (trial.results, trial.step) == ([4.0], 13)


def test_the_end_of_a_trial_is_no_rung() -> None:
    assert Trial().result_of(ASHA, report(10, steps=10.0, loss=1.0)) is None
    assert Trial().result_of(ASHA, report(10, steps=None, loss=1.0)) == 1.0


def test_what_is_not_a_number_is_worse_than_everything_and_max_turns_the_sign() -> None:
    assert Trial().result_of(ASHA, report(10, diverged=("loss",))) == math.inf
    largest = SearchSpec("acc", "max", "asha", first=1.0)
    assert Trial().result_of(largest, report(1, acc=0.9)) == -0.9
    assert largest.value(-0.9) == 0.9


def test_without_a_rule_there_are_no_results() -> None:
    assert Trial().result_of(SearchSpec("loss"), report(50, loss=1.0)) is None


def test_a_value_that_was_noted_at_the_rung_counts_before_a_later_one() -> None:
    late = Report(14.0, 100.0, series={"loss": 1.0}, at_rungs={0: 4.0})
    assert Trial().result_of(ASHA, late) == 4.0
    assert Trial(results=[4.0]).result_of(ASHA, late) is None
