"""Needs of policies of one's own, and policies that decide without what an engine cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import cluster, job

from skep.core.errors import InputError
from skep.core.events import JobSubmitted
from skep.core.needs import Need
from skep.core.state import State
from skep.core.step import Scheduler
from skep.policies.registry import Setting, build_planner, needs_of

OWN = """
from skep.policies import Order

class Mine(Order):
    {line}
    def key(self, job, now_s):
        return 0.0
"""


def own(folder: Path, line: str) -> str:
    (folder / "mine.py").write_text(OWN.format(line=line))
    return f"{folder}/mine.py:Mine"


@pytest.mark.parametrize(
    ("line", "knobs", "needs"),
    [
        ("name = 'mine'", "", ""),
        ("needs = {'history', 'oracle'}", "", "history oracle"),
        ("needs = 'progress'", "", "progress"),
        ("preemptive = True", "", "checkpoint"),
        ("needs = ()", ":walk=easy", "oracle"),
    ],
)
def test_an_own_policy_says_what_it_needs(tmp_path: Path, line: str, knobs: str, needs: str) -> None:
    assert needs_of(own(tmp_path, line) + knobs) == frozenset(map(Need, needs.split()))


@pytest.mark.parametrize("line", ["needs = {'magic'}", "needs = 7"])
def test_needs_that_are_none_are_refused_in_a_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"mine\.py: Mine\.needs is") as raised:
        needs_of(own(tmp_path, line))
    assert "history, progress" in (raised.value.hint or "")


@pytest.mark.parametrize(("offers", "gpus"), [(frozenset(Need), 4), (frozenset(Need) - {Need.RESIZE}, 2)])
def test_where_nothing_can_be_resized_an_elastic_job_gets_what_it_asks_for(offers: frozenset[Need], gpus: int) -> None:
    state = State(cluster("1x4"))
    scheduler = Scheduler(state, build_planner("afs-l", Setting(state.cluster, offers=offers)))
    scheduler.step(1.0, [JobSubmitted(job(2, id="a", min_gpus=1, max_gpus=4).spec)])
    held = state.jobs["a"].bound
    assert held is not None
    assert held.gpus == gpus
