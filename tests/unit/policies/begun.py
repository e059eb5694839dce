"""A simulated world under a pipeline, some instants after its beginning."""

from __future__ import annotations

from tests.support import World, cluster, trace
from tests.support.world import WorldCourse

from skep.policies.pipeline import Pipeline
from skep.traces.trace import TraceJob


def begun(policy: str, *jobs: TraceJob, on: str, steps: int) -> tuple[WorldCourse, Pipeline]:
    course = World(trace(*jobs), cluster(on), policy, restart_s=0.0).begin()
    for _ in range(steps):
        course.advance()
    planner = course.scheduler.planner
    assert isinstance(planner, Pipeline)
    return course, planner
