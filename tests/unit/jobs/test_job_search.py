"""A job file with `search`: its trials, and one clear line about everything that is wrong with it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from skep.core.errors import InputError
from skep.jobs.read import from_mapping, read_requests
from skep.jobs.request import Request
from skep.jobs.write import as_file


def read(search: Any, **fields: Any) -> list[Request]:
    job = {"name": "tune", "command": "train --lr ${lr}", "search": search, **fields}
    return from_mapping(job).requests


def refusal(search: Any, **fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(search, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_lists_alone_are_a_grid() -> None:
    found = read({"metric": "loss", "parameters": {"lr": [0.1, 0.01], "size": [1, 2, 3]}})
    assert [each.parameters for each in found][:2] == [{"lr": "0.1", "size": "1"}, {"lr": "0.1", "size": "2"}]
    assert [each.name for each in found] == [f"tune-{at}" for at in range(1, 7)]
    assert {each.group for each in found} == {"tune"}
    assert [each.of_group.index for each in found] == list(range(6))
    assert found[0].tasks["task"].command == "train --lr 0.1"
    assert found[0].of_group.search is not None
    assert found[0].of_group.search.rule == "none"


RANGES = {"lr": {"log": [1e-4, 0.1]}, "drop": {"uniform": [0, 0.5]}, "layers": {"int": [2, 4]}, "opt": ["adam", "sgd"]}


def test_ranges_are_drawn_and_the_draws_follow_from_the_seed() -> None:
    found = read({"metric": "loss", "trials": 200, "parameters": RANGES})
    values = [each.parameters for each in found]
    assert len({tuple(each.values()) for each in values}) == 200
    rates = sorted(float(each["lr"]) for each in values)
    assert 1e-4 <= rates[0] < 2e-4
    assert 0.05 < rates[-1] <= 0.1
    assert 1e-3 < rates[100] < 1e-2  # as many below the middle of the exponents as above
    assert all(0 <= float(each["drop"]) <= 0.5 for each in values)
    assert {each["layers"] for each in values} == {"2", "3", "4"}
    assert {each["opt"] for each in values} == {"adam", "sgd"}
    assert values == [each.parameters for each in read({"metric": "loss", "trials": 200, "parameters": RANGES})]
    other = read({"metric": "loss", "trials": 200, "seed": 1, "parameters": RANGES})
    assert values != [each.parameters for each in other]


def test_a_random_part_of_a_grid_has_no_trial_twice() -> None:
    found = read({"metric": "loss", "trials": 9, "parameters": {"lr": list(range(3)), "b": {"choice": [1, 2, 3]}}})
    assert len({tuple(each.parameters.values()) for each in found}) == 9


def test_the_file_of_a_trial_submits_it_with_its_rule() -> None:
    rule = {"metric": "acc", "mode": "max", "rule": "hypersched", "first": 10, "deadline_s": "2h", "gpu_hours": 20}
    first = read({**rule, "parameters": {"lr": [1, 2]}})[0]
    assert first.of_group.search is not None
    assert (first.of_group.search.eta, first.of_group.search.deadline_s) == (4.0, 7200.0)
    assert from_mapping(as_file(first)).requests == [first]


HUGE = {f"p{at}": list(range(10)) for at in range(19)}


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"parameters": {"lr": {"log": [0, 1]}}, "trials": 2}, "a log range begins above 0, and this one at 0"),
        ({"parameters": {"lr": {"log": [-1, 1]}}, "trials": 2}, "a log range begins above 0"),
        ({"parameters": {"lr": {"uniform": [1, 0]}}, "trials": 2}, "1 is not below 0, expected [low, high]"),
        ({"parameters": {"lr": {"int": [1.5, 3]}}, "trials": 2}, "expected two whole numbers"),
        ({"parameters": {"lr": {"uniform": [0, "nan"]}}, "trials": 2}, "expected a number"),
        ({"parameters": {"lr": {"uniform": [0, "inf"]}}, "trials": 2}, "expected a number"),
        ({"parameters": {"lr": {"uniform": ["9" * 5000, 1]}}, "trials": 2}, "expected a number"),
        ({"parameters": {"lr": {"uniform": [0]}}, "trials": 2}, "expected two numbers"),
        ({"parameters": {"lr": {"normal": [0, 1]}}, "trials": 2}, "normal"),
        ({"parameters": {"lr": {"log": [1, 2], "int": [1, 2]}}, "trials": 2}, "one of choice, uniform, log, int"),
        ({"parameters": {"lr": {"log": [1, 2]}}}, "search.parameters.lr is a range, which no grid has"),
        ({"parameters": {"lr": [1, 2]}, "propose": "random"}, "search.trials is missing"),
        ({"parameters": {"lr": [1, 2]}, "trials": 5}, "search.trials is 5, and there are 2 combinations"),
        ({"parameters": {"lr": [1, 2]}, "trials": 1001}, "expected a whole number from 1 to 1,000"),
        ({"parameters": {"lr": []}}, "expected a list of values"),
        ({"parameters": {}}, "expected at least one"),
        ({"parameters": {"l'r": [1]}}, "expected a name of letters, digits and underscores"),
        ({"parameters": {"lr": [1], **HUGE}}, "makes 10,000,000,000,000,000,000 jobs, expected at most 1,000"),
        ({"parameters": {"lrr": [1]}}, "${lr} is not a parameter of the search"),
        ({"parameters": {"lr": [1]}, "metric": 'a"b'}, "expected a series that the job reports"),
        ({"parameters": {"lr": [1]}, "metric": None}, "metric"),
        ({"parameters": {"lr": [1]}, "rule": "asha"}, "search.first is missing"),
        ({"parameters": {"lr": [1]}, "rule": "asha", "first": 0}, "expected a number above 0"),
        ({"parameters": {"lr": [1]}, "rule": "asha", "first": 1, "eta": 1}, "expected a number above 1"),
        ({"parameters": {"lr": [1]}, "rule": "hypersched", "first": 1}, "search.deadline_s is missing"),
        ({"parameters": {"lr": [1]}, "rule": "bogus"}, "expected one of none, median, asha, hypersched"),
        ({"parameters": {"lr": [1]}, "mode": "best"}, "expected min or max"),
        ({"parameters": {"lr": [1]}, "gpu_hours": 0}, "expected a number above 0"),
        ({"parameters": {"lr": [1]}, "deadline_s": 0}, "expected a duration above 0"),
        ({"parameters": {"lr": [1]}, "speed": 1}, "speed"),
    ],
)
def test_what_is_wrong_is_one_line(search: dict[str, Any], said: str) -> None:
    began_s = time.process_time()
    assert said in refusal({"metric": "loss", **search})
    assert time.process_time() - began_s < 1.0  # nothing is built before it is counted


def test_a_search_stands_alone() -> None:
    search = {"metric": "loss", "parameters": {"lr": [1]}}
    assert "sweep and search are both given" in refusal(search, sweep={"lr": [1]})
    assert "parameters and search are both given" in refusal(search, parameters={"lr": 1})
    assert "starts all of its tasks together" in refusal(search, gang=False)
    assert "metric is missing" in refusal({"parameters": {"lr": [1]}})
    assert "expected a mapping" in refusal([1])
    with pytest.raises(InputError, match=r"job\.yaml:3: search\.rule is nothing"):
        read_requests("name: a\ncommand: b\nsearch: {metric: loss, rule: nothing, parameters: {lr: [1]}}\n")
