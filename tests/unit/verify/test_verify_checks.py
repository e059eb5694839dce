"""Every check of `skep verify` holds, and every scheduler has one."""

from __future__ import annotations

import importlib
import signal

import pytest

from skep.core.errors import InputError
from skep.policies.place import PLACES
from skep.policies.registry import policies
from skep.verify.check import Check, at_most, between, falling, near, perform, same, show
from skep.verify.play import COLUMNS, Case, compare
from skep.verify.registry import FAMILIES, checks, select

LONG = ("ranking",)
"""Whole traces under several policies: `test_oracles_order.py` ranks these on other traces."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in checks()]
)
def test_what_is_seen_is_what_is_expected(name: str) -> None:
    found = perform(checks()[name])
    assert found.findings
    assert found.holds, [finding for finding in found.findings if not finding.holds]


@pytest.mark.parametrize("name", [*policies(), *PLACES, "patience"])
def test_every_policy_and_placement_has_a_check(name: str) -> None:
    assert any(check.policy == name for check in checks().values())


def test_no_check_hides_another_of_its_name() -> None:
    families = [importlib.import_module(f"skep.verify.{family}").CHECKS for family in FAMILIES]
    assert sum(map(len, families)) == len(checks())


@pytest.mark.parametrize("check", checks().values(), ids=lambda check: check.name)
def test_a_check_says_where_its_answer_is_from(check: Check) -> None:
    assert check.source
    assert check.title
    # It is printed to whatever terminal there is.
    assert (check.name + check.title + check.source).isascii()


def test_none_named_are_all() -> None:
    assert select(()) == list(checks().values())


def test_a_policy_names_all_its_checks_and_a_check_itself_once() -> None:
    assert [check.name for check in select(("drf",))] == ["drf-two-resources", "drf-gpus", "drf-hug", "drf-amf"]
    assert [check.name for check in select(("drf-gpus", "drf"))] == [
        "drf-gpus",
        "drf-two-resources",
        "drf-hug",
        "drf-amf",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tiresias", "tiresias-l"), ("fifo-esay", "fifo-easy"), ("consolidated", "consolidate"), ("", "")],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match="there is no check") as caught:
        select(("drf", name))
    assert hint in caught.value.hint


def test_a_check_that_breaks_down_is_a_finding() -> None:
    def broken() -> list[object]:
        raise KeyError("n0")

    found = perform(Check("broken", "fifo", "title", "source", broken))  # type: ignore[arg-type]
    assert not found.holds
    assert found.findings[0].seen == "KeyError: 'n0'"


def test_a_check_that_hangs_is_a_finding_even_if_it_catches_errors() -> None:
    def hangs() -> list[object]:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    found = perform(Check("hangs", "fifo", "title", "source", hangs), 0.1)  # type: ignore[arg-type]
    assert not found.holds
    assert found.findings[0].expected == "ends within 0.1 s"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("finding", "holds"),
    [
        (same("x", 1.0, 1), True),
        (same("x", (1, 2), (2, 1)), False),
        (same("x", None, 0.0), False),
        (near("x", 1.0, 1.0 + 1e-12), True),
        (near("x", 1.0, 1.01), False),
        (near("x", 1.0, 0.99, within=0.02), True),
        (near("x", 1.0, float("nan"), within=0.02), False),
        (between("x", 1, 2, 2), True),
        (between("x", 1, 2, 2.1), False),
        (at_most("x", 0.5, 0.5), True),
        (at_most("x", 0.5, 0.6), False),
        (falling("x", [3, 2, 1]), True),
        (falling("x", [3, 3, 1]), False),
    ],
    ids=str,
)
def test_findings_compare(finding: object, holds: bool) -> None:
    assert finding.holds is holds  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234.0, "1,234"),
        (2 / 3, "0.6667"),
        (1020, "1,020"),
        ((0.0, None, 20.5), "0 - 20.5"),
        ({"n0": 1, "n2": 3}, "n0:1 n2:3"),
        ({}, "nowhere"),
        ((), "none"),
        ("srsf", "srsf"),
        (float("inf"), "inf"),
    ],
)
def test_values_are_shown_as_one_reads_them(value: object, text: str) -> None:
    assert show(value) == text


def test_a_table_compares_each_column_of_each_case() -> None:
    rows = ((0, 10, 1), (5, 10, 1))
    right = {
        "starts": (0, 10),
        "ends": (10, 20),
        "preemptions": (0, 0),
        "GPU-seconds": (10, 10),
        "seconds without quota": (0, 0),
        "average JCT": 12.5,
    }
    assert right.keys() == COLUMNS.keys()
    wrong = {name: (1,) for name in right}
    found = compare(Case("fifo", "1x1", rows, right), Case("fifo", "1x1", rows, wrong))()
    assert [finding.holds for finding in found] == [True] * 6 + [False] * 6
    assert found[0].what == "fifo, a b: starts"
