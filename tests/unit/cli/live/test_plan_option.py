"""`skep submit --plan` and `skep run --plan`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

from skep.cli.plan import plan_lines
from skep.core.errors import SkepError

Ask = Callable[..., Result]
TRIED = {"type": "tried", "changes": 1, "seconds": 0.2, "samples": 16, "cut": False, "error": ""}
FREE = {"type": "plan", "preempts": [], "preempts_others": 0, "delays": [], "delayed": 0, "delay_s": 0.0, "samples": 16}


def likely(*times: float) -> dict[str, Any]:
    return {**dict(zip(("p10_s", "p50_s", "p90_s"), times, strict=True)), "poor": False}


def planned(now_s: float, **more: Any) -> dict[str, Any]:
    start, end = likely(now_s, now_s, now_s), likely(now_s + 3600, now_s + 7200, now_s + 10800)
    new = {"name": "new", "gpus": 4.0, "nodes": ["n0"], "start": start, "end": end, "gpu_hours": 8.0}
    return {**FREE, "until_s": now_s + 86400, "jobs": [{**new, "lengths": "owner", **more}]}


def lines(*found: dict[str, Any]) -> FakeAnswer:
    return FakeAnswer(pieces=[json.dumps(each).encode() + b"\n" for each in found], media_type="application/x-ndjson")


def test_in_words() -> None:
    plan = {**planned(1000.0), "alternatives": []}
    assert list(plan_lines(plan, 1000.0)) == [
        "new: 4 GPUs, starts now on n0, ends in 2h (60m-3h), 8 GPU-hours, length as its owner expects",
        "It delays no other job.",
        "From 16 simulations, if no other job is submitted.",
    ]
    waits = planned(1000.0, nodes=[], start=likely(1300.0, 1600.0, 1900.0), end=None, gpu_hours=None, lengths="none")
    waits |= {"preempts": ["3"], "preempts_others": 2, "delays": [{"job": "4", "delay_s": 600.0}], "delayed": 3}
    fix = {"text": "ask for 2 GPUs instead of 4", "effect": "the job starts at once on n0"}
    assert list(plan_lines({**waits, "delay_s": 1200.0, "alternatives": [fix]}, 1000.0))[:-1] == [
        "new: 4 GPUs, waits, starts in 10m (5m-15m), length unknown",
        "It preempts job 3, 2 jobs of other VCs.",
        "It delays job 4 by 10m, 2 more; 20m all together.",
        "Instead, at once:",
        "  ask for 2 GPUs instead of 4: the job starts at once on n0",
    ]


@pytest.mark.parametrize(("flags", "answered", "is_sent"), [((), "n", False), ((), "y", True), (("-y",), "", True)])
def test_it_asks(api: FakeApi, ask: Ask, tmp_path: Path, flags: tuple[str, ...], answered: str, is_sent: bool) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: new\ngpus: 4\ncommand: 'true'\n")
    api.answers["POST /jobs:plan"] = lines(planned(time.time()), TRIED)
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("9"), "jobs": [job("9")], "warnings": []})
    found = ask("submit", str(file), "--plan", *flags, input=answered)
    assert "starts now on n0" in found.stderr
    assert (len(api.bodies("POST", "/jobs")) == 1, found.stdout == "9\n") == (is_sent, is_sent)
    assert (found.exit_code == 0) == is_sent
    ask("run", "--plan", *flags, "-d", "--", "true", input=answered)
    assert (len(api.bodies("POST", "/jobs")) == 2) == is_sent


def test_no_plan_is_an_error(api: FakeApi, ask: Ask) -> None:
    api.answers["POST /jobs:plan"] = lines({**TRIED, "error": "the policy failed"})
    with pytest.raises(SkepError, match="there is no plan: the policy failed"):
        ask("run", "--plan", "-d", "--", "true")
    assert api.bodies("POST", "/jobs") == []
