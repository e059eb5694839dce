"""The metric of a search is noted at exactly the steps where its trials are compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from skep.core.search import SearchSpec
from skep.jobs.env import _of_search
from skep.jobs.request import OfGroup, Request
from skep.service.progress import read_report, rungs_in
from skep.train.progress import ProgressFile, Rungs


def test_each_rung_is_noted_once_and_at_its_step() -> None:
    rungs = Rungs("loss 3 3")
    reached = [step for step in range(1, 30) if rungs.reached(step, {"loss": step / 10})]
    assert reached == [3, 9, 27]
    assert rungs.values == {0: 0.3, 1: 0.9, 2: 2.7}


def test_a_run_that_goes_on_behind_a_rung_does_not_note_it_again() -> None:
    rungs = Rungs("loss 3 3")
    assert not rungs.reached(5, {"loss": 1.0})
    assert rungs.reached(9, {"loss": 0.5})
    assert rungs.values == {1: 0.5}


def test_steps_without_the_metric_are_passed_over_and_a_late_one_counts_for_what_it_passed() -> None:
    rungs = Rungs("acc 10 1.0")
    assert not rungs.reached(10, {"loss": 1.0})
    assert not rungs.reached(9, {"acc": None})
    assert not rungs.reached(9, {"acc": 0.1})
    assert rungs.reached(31, {"acc": 0.5})
    assert rungs.values == {0: 0.5, 1: 0.5, 2: 0.5}


def test_a_value_that_is_not_a_number_is_not_noted() -> None:
    rungs = Rungs("loss 1 2")
    assert rungs.reached(1, {"loss": math.nan})
    assert rungs.noted() == {}


@pytest.mark.parametrize("said", ["", "loss", "loss 1"])
def test_without_a_search_nothing_is_noted(said: str) -> None:
    assert not Rungs(said).reached(100, {"loss": 1.0})


def test_from_the_variable_to_the_report_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = SearchSpec("loss", rule="asha", first=2.0, eta=2.0)
    (variable,) = _of_search(Request("a", {}, of_group=OfGroup(search=search))).items()
    monkeypatch.setenv(*variable)
    file = ProgressFile(tmp_path)
    for step in range(1, 6):
        if file.report(step, {"loss": 1 / step}, 1.0):
            file.write(step=step)
    found = read_report(json.loads((tmp_path / "progress.json").read_text()), 0.0)
    assert found is not None
    assert found.report.at_rungs == {0: 0.5, 1: 0.25}


def test_hostile_rungs_are_passed_over() -> None:
    assert rungs_in("0:nan 1:inf x:1 2: :3 3:0.5 99999999999:1 4:1e400") == {3: 0.5}
    assert rungs_in(7) == {}
    assert len(rungs_in("1:1 " * 10**6)) <= 20
