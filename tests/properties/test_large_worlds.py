"""The same promises on a trace that keeps a cluster of many nodes busy."""

from __future__ import annotations

import pytest
from tests.support import World, job, trace

from skep.clusters import read_cluster
from skep.core.chance import draw
from skep.policies.registry import policies
from skep.traces.trace import Trace


def busy_trace(count: int) -> Trace:
    """Sizes, lengths and arrivals drawn by hand, so that they are the same with every library."""
    jobs = []
    at_s = 0.0
    for number in range(count):
        size, length, gap, who = (draw(7, number, part) for part in range(4))
        at_s += gap % 60
        jobs.append(
            job(
                (1, 1, 1, 2, 4, 8, 16, 24)[size % 8],
                work=float(30 + length % 3000),
                at=at_s,
                vc=("a", "b", "c")[who % 3],
                user=("ann", "bob", "cho", "dee")[who // 3 % 4],
                model=("", "vgg16", "resnet50")[who // 12 % 3],
                priority=int(who % 50 == 0),
            )
        )
    return trace(*jobs)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(policies()))
def test_a_busy_cluster_with_failures_is_sound_and_can_be_forked(name: str) -> None:
    outages = tuple((node, 500.0 * (node + 1), 500.0 * (node + 1) + 700.0) for node in range(16))
    world = World(busy_trace(250), read_cluster("12x8:v100+4x8:k80"), name, restart_s=30.0, outages=outages)
    course = world.begin()
    checker = world.checker(course.state)
    checker.every = 10
    for _ in range(200):
        course.advance(checker)
    fork = course.fork(world.planner())
    course.finish(checker)
    checker.check_done()
    fork.finish()
    assert fork.csv() == course.csv()
