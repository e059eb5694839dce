"""All faults of a job file at once."""

from __future__ import annotations

import pytest

from skep.jobs.problems import read_all


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name: a\ncommand: x\n", []),
        ("name: a\ncommand: x\nwhat: 1\npriority: 2000\n", [("what", 3), ("priority", 4)]),
        ("name: a b\ncommand: x\ngpus: no\n", [("gpus", 3), ("name", 1)]),
        ("- {name: a, command: x, gpus: -1}\n- {name: b, command: x, cpu: q}\n", [("[0].gpus", 1), ("[1].cpu", 2)]),
        ("name: a\ntasks:\n  w: {command: x, count: 0, gpus: 9999}\n", [("tasks.w.count", 3), ("tasks.w.gpus", 3)]),
        ("name: [", [("", 2)]),
        ("", [("", None)]),
        ('{"name": "a", "command": "x",\n "gpus": -1}', [("gpus", 2)]),
        ("name: a\n", [("", 1)]),
    ],
)
def test_each_fault_says_where_it_is(text: str, found: list[tuple[str, int | None]]) -> None:
    reading, faults = read_all(text, "job", "")
    assert sorted((fault.path, fault.line or 0) for fault in faults) == sorted(
        (path, line or 0) for path, line in found
    )
    assert (reading is None) is bool(found)


def test_there_are_never_too_many() -> None:
    text = "name: a\ncommand: x\n" + "".join(f"unknown{number}: 1\n" for number in range(50))
    assert len(read_all(text, "job", "")[1]) == 20
