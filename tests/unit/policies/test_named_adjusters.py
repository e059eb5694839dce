"""The knob `adjust`: adjusters for any policy."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, trace

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.share import Share
from skep.policies.registry import Setting, build_planner, needs_of


def test_jobs_of_any_order_take_turns() -> None:
    jobs = [job(1, id=name, work=100.0) for name in "ab"]
    alone = World(trace(*jobs), cluster("1x1"), "qssf").run()
    turns = World(trace(*jobs), cluster("1x1"), "qssf:adjust=slices").run()
    assert [each.start_s for each in alone.state.jobs.values()] == [0.0, 100.0]
    assert [each.start_s for each in turns.state.jobs.values()] == [0.0, 0.0]


@pytest.mark.parametrize(("policy", "stopped"), [("fifo:walk=skip", 1), ("fifo:walk=skip,adjust=deflate", 0)])
def test_a_job_of_a_lower_priority_shrinks_instead_of_being_stopped(policy: str, stopped: int) -> None:
    jobs = [job(4, id="low", min_gpus=1, max_gpus=4, work=300.0), job(2, id="high", at=10.0, work=50.0, priority=1)]
    state = World(trace(*jobs), cluster("1x4"), policy).run().state
    assert state.jobs["high"].start_s == 10.0
    assert state.jobs["low"].preemptions == stopped


def test_a_policy_that_preempts_by_its_order_spares_only_jobs_of_a_lower_priority() -> None:
    long = job(4, id="long", min_gpus=1, max_gpus=4, work=300.0)
    for priority, stopped in ((0, 1), (1, 0)):
        short = job(2, id="short", at=10.0, work=50.0, priority=priority)
        state = World(trace(long, short), cluster("1x4"), "srsf:adjust=deflate").run().state
        assert state.jobs["short"].start_s == 10.0
        assert state.jobs["long"].preemptions == stopped


def test_a_part_that_is_left_alone_stays_a_part() -> None:
    part = job(1, id="a", work=60.0, gpu_milli=500, share=Share("pack"))
    course = World(trace(part), cluster("1x1"), "kubeshare:adjust=slices+pack").begin()
    course.advance()
    held = course.state.jobs["a"].allocation
    assert held is not None
    assert (held.terms.mode, held.terms.milli) == ("pack", 500)


def test_needs_are_those_of_the_adjusters() -> None:
    assert needs_of("fifo") == frozenset()
    assert needs_of("fifo:adjust=migrate+slices") == {Need.THROUGHPUT, Need.MIGRATE, Need.SHARE}
    assert needs_of("fifo:adjust=slices+pack") == {Need.THROUGHPUT, Need.SHARE}
    assert needs_of("fifo:adjust=deflate,walk=easy") == {Need.RESIZE, Need.ORACLE}


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("fifo:adjust=slice", "there is no adjuster 'slice'"),
        ("fifo:adjust=slices+", "there is no adjuster ''"),
        ("fifo:adjust=pack", "pack tries jobs that take turns"),
        ("gandiva:adjust=slices", "the policy has slices already"),
        ("srtf:compat=true,place=any,adjust=slices", "no adjusters"),
        ("singularity:adjust=slices", "no knob 'adjust'"),
    ],
)
def test_a_wrong_name_is_one_line(policy: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build_planner(policy, Setting(cluster("1x1")))
