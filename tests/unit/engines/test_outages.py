"""Failure plans: when nodes fail and come back."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clusters import read_cluster
from skep.core.errors import InputError
from skep.engines.sim.outages import Outages, parse_failures

CLUSTER = read_cluster("4x8")
HEADER = "node,down_s,up_s\n"


def changes(outages: Outages, count: int = 100) -> list[tuple[float, int, bool]]:
    """The first changes: (when, node, whether it is lost)."""
    found: list[tuple[float, int, bool]] = []
    while outages.next_s < math.inf and len(found) < count:
        at_s = outages.next_s
        found += [(at_s, node, is_lost) for node, is_lost in outages.take(at_s)]
    return found


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "failures.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "mtbf_s", "repair_s"),
    [
        ("mtbf=3600,repair=60", 3600, 60),
        ("repair=60s,mtbf=1.5h", 5400, 60),
        (" mtbf = 30d , repair = 90m ", 30 * 86400, 5400),
        ("mtbf=1e6,repair=.5", 1e6, 0.5),
    ],
    ids=["seconds", "units in any order", "blanks", "other ways to write numbers"],
)
def test_means_are_read(text: str, mtbf_s: float, repair_s: float) -> None:
    outages = parse_failures(text, CLUSTER, seed=7)
    assert (outages.mtbf_s, outages.repair_s, outages.seed) == (mtbf_s, repair_s, 7)
    assert {node for _, node, _ in outages.calendar} == {0, 1, 2, 3}


def test_the_seed_decides() -> None:
    first, again, other = (parse_failures("mtbf=1d,repair=1h", CLUSTER, seed=seed) for seed in (1, 1, 2))
    assert changes(first) == (same := changes(again))
    assert changes(other) != same


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(0, 2**32))
def test_drawn_nodes_are_lost_and_come_back_in_turn(mtbf_s: float, repair_s: float, seed: int) -> None:
    outages = parse_failures(f"mtbf={mtbf_s:.6f},repair={repair_s:.6f}", CLUSTER, seed=seed)
    is_down = dict.fromkeys(range(4), False)
    for _, node, is_lost in changes(outages):
        assert is_down[node] is not is_lost
        is_down[node] = is_lost


def test_a_file_is_its_changes_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "n1,50,\n\nn0,10,20\nn0,20,30.5\n")
    assert changes(parse_failures(path, CLUSTER, seed=0)) == [
        (10.0, 0, True),
        (20.0, 0, False),
        (20.0, 0, True),
        (30.5, 0, False),
        (50.0, 1, True),
    ]


def test_columns_may_be_in_any_order(tmp_path: Path) -> None:
    path = written(tmp_path, "up_s,node,down_s\n2,n0,1\n")
    assert changes(parse_failures(path, CLUSTER, seed=0)) == [(1.0, 0, True), (2.0, 0, False)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mtbf=3600", "repair is missing"),
        ("mtbf=3600,mtbf=1,repair=1", "mtbf is given twice"),
        ("mtbf=0,repair=1", "mtbf is 0, expected a time above 0"),
        ("mtbf=-1,repair=1", "mtbf is -1, expected"),
        ("mtbf=inf,repair=1", "mtbf is inf, expected"),
        ("mtbf=1w,repair=1", "mtbf is 1w, expected"),
        ("mtbf=,repair=1", "mtbf is empty, expected"),
        ("mtbf=1,repair=1,", "unknown part"),
        ("mtbf=1,repairs=1", "unknown part repairs=1, did you mean repair?"),
        ("=1", "unknown part =1"),
        ("nowhere.csv", "no such file, expected mtbf="),
        ("", "is a folder"),
    ],
    ids=[
        "half of it",
        "a key twice",
        "never working",
        "negative",
        "endless",
        "a unit that is not known",
        "no value",
        "a comma too many",
        "a key that is not known",
        "no key",
        "a file that is not there",
        "nothing",
    ],
)
def test_a_malformed_plan_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_failures(text, CLUSTER, seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,down\nn0,1\n", ":1: columns are node,down, expected node,down_s,up_s"),
        (HEADER + "n0,1\n", ":2: 2 cells, expected 3"),
        (HEADER + "n9,1,2\n", ":2: node is n9, not in the cluster"),
        (HEADER + ",1,2\n", ":2: node is empty, not in the cluster"),
        (HEADER + "n0,,2\n", ":2: down_s is empty, expected a number of seconds >= 0"),
        (HEADER + "n0,-1,2\n", ":2: down_s is -1, expected"),
        (HEADER + "n0,nan,2\n", ":2: down_s is nan, expected"),
        (HEADER + "n0,1,soon\n", ":2: up_s is soon, expected"),
        (HEADER + "n0,2,2\n", ":2: up_s is 2, expected more than down_s 2"),
        (HEADER + "n0,5,15\nn1,0,9\nn0,1,6\n", ":2: node n0 is already down by line 4"),
        (HEADER + "n0,1,\nn0,5,6\n", ":3: node n0 is already down by line 2"),
        ("", "is empty"),
        ("\0", "is not a text file"),
    ],
    ids=[
        "other columns",
        "a short row",
        "a node that is not there",
        "no node",
        "no beginning",
        "a negative time",
        "not a number",
        "a word for a time",
        "back before it failed",
        "overlapping outages",
        "an outage after the last",
        "an empty file",
        "a binary file",
    ],
)
def test_a_fault_in_a_file_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_failures(path, CLUSTER, seed=0)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


periods = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 50)), max_size=8)


@given(periods)
def test_a_file_is_read_just_when_its_outages_are_apart(periods: list[tuple[int, int, int]]) -> None:
    """Against a twin that compares every pair."""
    import tempfile

    overlap = any(
        one[0] == other[0] and one[1] < other[1] + other[2] and other[1] < one[1] + one[2]
        for at, one in enumerate(periods)
        for other in periods[:at]
    )
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(HEADER + "".join(f"n{node},{down},{down + length}\n" for node, down, length in periods))
        file.flush()
        if overlap:
            with pytest.raises(InputError, match="already down"):
                parse_failures(file.name, CLUSTER, seed=0)
        else:
            assert len(changes(parse_failures(file.name, CLUSTER, seed=0))) == 2 * len(periods)
