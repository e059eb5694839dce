"""Entries and snapshots of format 5 in the words of format 6."""

from __future__ import annotations

from typing import Any

from skep.service.convert import Groups


def submitted(job_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "JobSubmitted", "job": {"id": job_id, "shapes": [], **more}}


def test_tasks_names_and_needs_become_groups() -> None:
    groups = Groups(set())
    events = [
        submitted("3/w-x-0", vc="v"),
        submitted("3/w-x-1", vc="v"),
        submitted("4", needs=["2", "3"]),
        submitted("5", group="tune", vc="v", user="ann"),
        {"type": "MembersEnded", "job_id": "3", "succeeded": False},
    ]
    entry = {"at_s": 1.0, "events": events, "plans": []}
    assert groups.convert_entry(entry)
    own = {"id": "3", "kind": "incremental", "ends_when": {"never": True}}
    assert entry["events"] == [
        {"type": "GroupFormed", "group": own},
        submitted("3/w-x-0", vc="v", group=["3", "w-x", 0], needs=[]),
        submitted("3/w-x-1", vc="v", group=["3", "w-x", 1], needs=[]),
        submitted("4", needs=["2"], needs_groups=["3"]),
        {"type": "GroupFormed", "group": {"id": "v/ann/tune", "name": "tune"}},
        submitted("5", group=["v/ann/tune", "", 0], vc="v", user="ann", needs=[]),
        {"type": "GroupEnded", "group_id": "3", "outcome": "failed", "reason": ""},
    ]
    assert not groups.convert_entry({"at_s": 2.0, "events": [submitted("6"), {"type": "TimerDue"}], "plans": []})


def test_a_snapshot_gets_its_groups_with_how_far_they_are() -> None:
    jobs = [
        [{"id": f"3/w-{number}"}, number, 0.0, state] for number, state in enumerate(("failed", "running", "stopped"))
    ]
    saved = {"jobs": jobs, "needed_by": {"3": ["4"], "1": ["2"]}}
    Groups({"3"}).convert_snapshot(saved)
    assert saved["needed_by"] == {"1": ["2"]}
    assert saved["groups"] == [
        {
            "spec": {"id": "3", "kind": "incremental", "ends_when": {"never": True}},
            "members": {"3/w-0": "failed", "3/w-1": None, "3/w-2": "stopped"},
            "left": 1,
            "failed": {"w": 1},
            "is_cut_short": True,
            "needed_by": ["4"],
        }
    ]
