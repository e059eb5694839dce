"""A job that is launching cannot be stopped; the job that wanted its GPUs is tried again when it runs."""

from __future__ import annotations

from tests.support import World, trace

from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import JobSpec, Role, Shape
from skep.traces.trace import TraceJob


def arrival(at_s: float, work_s: float, id: str, role: Role, *, priority: int = 0, fixed: bool = False) -> TraceJob:
    spec = JobSpec(id=id, shapes=(Shape((role,)),), expect_s=work_s, priority=priority, preemptible=not fixed)
    return TraceJob(at_s, work_s, spec)


def preemptions_of_one_instant() -> World:
    """At one boundary of rounds a job is stopped for another, and a third starts on what is left over."""
    jobs = (
        arrival(10, 500, "weak", Role(gpus=1, gpu_mem_gib=10), priority=-1),
        arrival(35, 196, "first", Role(gpus=1, gpu_mem_gib=8)),
        arrival(159, 431, "strong", Role(count=2, gpus=1, gpu_mem_gib=5), priority=1),
        arrival(160, 407, "pair", Role(count=2, gpus=1, gpu_mem_gib=10), fixed=True),
        arrival(160, 40, "short", Role(gpus=1), fixed=True),
        arrival(209, 202, "wide", Role(count=4, gpus=1, gpu_mem_gib=10)),
        arrival(209, 202, "wide-too", Role(count=4, gpus=1, gpu_mem_gib=10)),
        arrival(217, 526, "urgent", Role(count=2, gpus=1, gpu_mem_gib=8), priority=50),
        arrival(224, 571, "last", Role(gpus=1, gpu_mem_gib=8), priority=50, fixed=True),
    )
    nodes = Cluster([NodeSpec(f"n{number}", gpus=2, gpu_mem_mib=16384) for number in range(3)])
    return World(trace(*jobs), nodes, "fifo:walk=skip", restart_s=0.0, checkpoint_s=25.0, round_s=47.5)


def test_a_fork_between_two_rounds_preempts_what_the_original_preempts() -> None:
    world = preemptions_of_one_instant()
    for steps in range(30):
        original = world.begin()
        for _ in range(steps):
            original.advance()
        fork = original.fork(world.planner())
        original.finish()
        fork.finish()
        assert original.csv() == fork.csv(), f"forked after {steps} steps"
