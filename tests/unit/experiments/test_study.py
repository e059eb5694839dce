"""Studies: the policies that can be served, repetitions that can be resumed, and recommendations that are right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import skep
from skep.core.errors import InputError
from skep.experiments.setup import make_experiment
from skep.experiments.simulate import Experiment, Options
from skep.experiments.study.analyse import Side, compare_pairs
from skep.experiments.study.choose import NOTHING, ORACLES, candidates, clusters_of, variation
from skep.experiments.study.outcome import JOURNAL, RunOutcome
from skep.experiments.study.page import render_study
from skep.experiments.study.recommend import recommend
from skep.experiments.study.study import Study, StudyQuestion, run_study
from skep.experiments.study.tables import run_rows, summary_rows, write_study
from skep.experiments.study.words import advice_text, verdict_on
from skep.profiles.read import read_profile

HOUR_S = 3600.0


def experiment(rows: Any, cluster: str = "1x1", **options: Any) -> Experiment:
    return make_experiment(skep.trace(rows), cluster, Options(**options), None, "cells", named=str)


def one_server(seed: int, lengths: str, jobs: int = 300) -> list[dict[str, Any]]:
    """Jobs of one GPU, arriving by chance at a load of 0.85: many short and few long ones, or all equally long."""
    draw = random.Random(seed)
    mean_s, at_s, rows = 300.0, 0.0, []
    for number in range(jobs):
        at_s += draw.expovariate(0.85 / mean_s)
        mixed = draw.expovariate(1 / 60.0) if draw.random() < 0.9 else draw.expovariate(1 / 2460.0)
        duration_s = max(round(mixed, 1), 1.0) if lengths == "mixed" else mean_s
        rows.append({"job_id": f"j{number}", "submit_s": round(at_s, 1), "duration_s": duration_s, "gpus": 1})
    return rows


RIVALS = ("fifo", "las:queues=60+600", "srtf")


@pytest.mark.parametrize(("lengths", "best"), [("mixed", RIVALS[1]), ("equal", "fifo")])
def test_the_recommendation_is_what_theory_knows(lengths: str, best: str) -> None:
    """On one server, if little is known of a job: least attained service is best where long jobs stay long (a
    decreasing hazard rate), first come first served where all are equal. Of twenty traces eighteen must be right, and
    the oracle must never win."""
    right = 0
    for seed in range(10):
        question = StudyQuestion((experiment(one_server(seed, lengths), restart_s=0.0),), policies=RIVALS)
        found = run_study(question).recommendations[0]
        assert found.best is not None
        assert found.best.policy != "srtf"
        assert found.bound is not None
        assert found.bound.policy == "srtf"
        right += found.is_sure and found.best.policy == best
    assert right >= 9


def test_where_two_are_equal_it_cannot_tell() -> None:
    for seed in range(5):
        question = StudyQuestion(
            (experiment(one_server(seed, "equal", jobs=100)),), policies=("fifo", "fifo:walk=skip"), repetitions=5
        )
        found = run_study(question).recommendations[0]
        assert not found.is_sure
        assert verdict_on(found).startswith("Cannot tell fifo and fifo:walk=skip apart")


def test_nearly_equal_policies_are_called_different_no_more_often_than_chance_allows() -> None:
    """Two orders that have nothing to do with lengths: over many traces, one is called better in few."""
    draw = random.Random(1)
    wrong = 0
    for _ in range(200):
        sides = [
            Side(
                name,
                "1x1",
                frozenset(),
                NOTHING,
                False,
                tuple(
                    RunOutcome("", name, "1x1", n, values={"jct_avg_s": draw.lognormvariate(0, 0.3), "finished": 1.0})
                    for n in range(11)
                ),
                is_drawn=False,
            )
            for name in ("a", "b")
        ]
        wrong += recommend(sides).is_sure
    assert wrong <= 20


def test_more_bootstraps_do_not_make_a_difference_surer_but_more_seeds_do() -> None:
    def side(name: str, factor: float, count: int, *, is_drawn: bool) -> Side:
        draw = random.Random(name + str(is_drawn))
        values = [factor * draw.lognormvariate(0, 0.2) for _ in range(count)]
        runs = tuple(RunOutcome("", name, "c", n, values={"jct_avg_s": value}) for n, value in enumerate(values))
        return Side(name, "c", frozenset(), NOTHING, False, runs, is_drawn)

    chances = {
        (count, is_drawn): compare_pairs(
            side("b", 1.1, count, is_drawn=is_drawn), side("a", 1.0, count, is_drawn=is_drawn), "jct_avg_s"
        ).chance
        for count in (20, 500)
        for is_drawn in (True, False)
    }
    assert chances[500, True] > 0.05
    assert chances[500, False] < 0.001


ROWS = one_server(7, "mixed", jobs=80)


def test_a_study_that_goes_on_writes_the_same_bytes(tmp_path: Path) -> None:
    question = StudyQuestion((experiment(ROWS, "1x2"),), policies=("fifo", "las", "srsf"), repetitions=4)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    write_study(run_study(question, folder=whole), whole)
    lines = (whole / JOURNAL).read_bytes().splitlines(keepends=True)
    assert len(lines) == 15
    broken.mkdir()
    (broken / JOURNAL).write_bytes(b"".join(lines[:6]) + lines[6][:40])
    done: list[int] = []
    made = run_study(question, parallel=2, folder=broken, report=lambda now, total: done.append(now))
    write_study(made, broken)
    assert done == list(range(7, 16))
    for file in whole.iterdir():
        if file.name not in (JOURNAL, "timings.csv"):
            assert file.read_bytes() == (broken / file.name).read_bytes(), file.name
    run_study(question, folder=broken, report=lambda now, total: done.append(-1))
    assert -1 not in done


def test_another_question_does_not_use_the_runs_of_the_first(tmp_path: Path) -> None:
    done: list[int] = []

    def count(question: StudyQuestion) -> int:
        done.clear()
        run_study(question, folder=tmp_path, report=lambda now, total: done.append(now))
        return len(done)

    first = StudyQuestion((experiment(ROWS, "1x2"),), policies=("fifo",), repetitions=2)
    assert count(first) == 3
    assert count(StudyQuestion((experiment(ROWS, "1x2"),), policies=("fifo", "las"), repetitions=3)) == 5
    assert count(StudyQuestion((experiment(ROWS, "1x3"),), policies=("fifo",), repetitions=2)) == 3
    assert count(StudyQuestion((experiment(ROWS[:-1], "1x2"),), policies=("fifo",), repetitions=2)) == 3
    assert count(StudyQuestion((experiment(ROWS, "1x2", restart_s=1.0),), policies=("fifo",), repetitions=2)) == 3
    assert (
        count(StudyQuestion((experiment(ROWS, "1x2", failures="mtbf=9e4,repair=60"),), ("fifo",), None, 2, False)) == 2
    )


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="other files"):
        run_study(StudyQuestion((experiment(ROWS),), policies=("fifo",)), folder=tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"repetitions": 0}, "seeds is 0"),
        ({"measure": "jct_avg"}, "'jct_avg' is not a measure"),
        ({"is_drawn": False}, "every repetition would be the same run"),
    ],
)
def test_a_question_without_an_answer_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StudyQuestion((experiment(ROWS),), policies=("fifo",), **changed).check()


def test_all_policies_that_can_be_served_by_what_they_assume() -> None:
    found, left_out = candidates(experiment(ROWS), ())
    groups = {each.policy: each.group for each in found}
    assert groups["fifo"] == groups["fifo:walk=skip"] == NOTHING
    assert groups["srsf"] == groups["e-las"] == ORACLES
    assert "no profile" in left_out["gandiva"]
    assert "gpu_milli" in left_out["kubeshare"]
    assert not set(groups) & set(left_out)


def test_with_a_profile_more_of_them_can_be_served(tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text("models:\n  a:\n    types: {v100: 1.0, k80: 0.5}\n")
    jobs = skep.trace([row | {"model": "a"} for row in ROWS])
    profile = read_profile(file)
    _, left_out = candidates(make_experiment(jobs, "1x2:v100+1x2:k80", Options(), profile, "cells", named=str), ())
    assert not {"allox", "themis", "gandiva-fair"} & set(left_out)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("8x8", ["8x8"]),
        ("2..4x8:v100+1x4:k80", ["2x8:v100+1x4:k80", "3x8:v100+1x4:k80", "4x8:v100+1x4:k80"]),
        ("8..20x8", ["8x8", "10x8", "12x8", "14x8", "16x8", "18x8", "20x8"]),
        ("4..10..4x2", ["4x2", "8x2"]),
    ],
)
def test_ranges_of_sizes(spec: str, found: list[str]) -> None:
    assert clusters_of([spec]) == found


@pytest.mark.parametrize("spec", ["8..4x8", "0..4x8", "2..8..0x8"])
def test_wrong_ranges(spec: str) -> None:
    with pytest.raises(InputError, match=r"LOW\.\.HIGH"):
        clusters_of([spec])


def test_values_of_a_knob() -> None:
    found = variation("tiresias-l:place=any,queues=1000,3250+7200")
    assert found.knob == "tiresias-l:queues"
    assert found.policies == {
        "tiresias-l:place=any,queues=1000": "1000",
        "tiresias-l:place=any,queues=3250+7200": "3250+7200",
    }
    for wrong in ("tiresias-l:queues=1000", "tiresias-l", "fifo:walk=skip,place=any,first-fit,walk=easy,strict"):
        with pytest.raises(InputError):
            variation(wrong)
    with pytest.raises(InputError, match="no knob"):
        variation("fifo:queues=1,2")


@pytest.fixture(scope="module")
def sized() -> Study:
    worlds = tuple(experiment(ROWS, cluster) for cluster in ("1x1", "2x1", "3x1"))
    return run_study(StudyQuestion(worlds, policies=("fifo", "las", "srsf"), repetitions=3))


def test_rows_have_every_run_and_every_measure(sized: Study) -> None:
    rows = run_rows(sized)
    assert len(rows) == 3 * 3 * 4
    alone = skep.simulate(ROWS, cluster="2x1", policy="las").summary
    ours = next(row for row in rows if (row["policy"], row["cluster"], row["repetition"]) == ("las", "2x1", 0))
    assert ours["jct_avg_s"] == pytest.approx(alone.jct_avg_s, abs=1e-6)
    assert ours["slowdown_avg"] == pytest.approx(alone.slowdown_avg, abs=1e-6)
    for row in summary_rows(sized):
        assert row["jct_avg_s_low"] <= row["jct_avg_s"] <= row["jct_avg_s_high"]  # type: ignore[operator]


def test_the_page_has_curves_over_sizes_and_an_answer_for_each(sized: Study) -> None:
    page = render_study(sized)
    assert "Along GPUs of the cluster" in page
    assert page.count('class="forest"') == 2
    text = advice_text(sized)
    assert text.count("Recommendation: ") == 3
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_page_has_curves_over_values_and_escapes_names() -> None:
    rows = [row | {"job_id": f"<{row['job_id']}>"} for row in ROWS]
    world = experiment(rows)
    world.trace.name = "<script>alert(1)</script>"
    made = run_study(StudyQuestion((world,), variation=variation("las:queues=none,60,600"), repetitions=2))
    page = render_study(made)
    assert "Along las:queues" in page
    assert "<script>alert" not in page


def test_a_policy_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "from skep.policies import Order\n\n\nclass Bad(Order):\n"
        "    def key(self, job, now_s):\n        return job.nosuch\n"
    )
    made = run_study(StudyQuestion((experiment(ROWS),), policies=("fifo", f"{file}:Bad"), repetitions=2))
    assert "bad.py:6" in made.failed[f"{file}:Bad"]
    assert [side.policy for side in made.sides] == ["fifo"]
    assert "only policy" in verdict_on(made.recommendations[0])
    assert "it failed" in render_study(made)
