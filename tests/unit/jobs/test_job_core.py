"""What the scheduler sees of a request."""

from __future__ import annotations

import msgspec

from skep.core.model import GroupRef, JobSpec, Role, Shape
from skep.jobs.core import Needed, to_core
from skep.jobs.request import Elastic, Request, TaskRole

WORKER = TaskRole(count=2, gpus=4, gpu_type="v100|a100", gpu_milli=500, gpu_mem_gib=8, cpu=3, memory_gib=5, command="x")
REQUEST = Request(
    name="train",
    tasks={"worker": WORKER, "watcher": TaskRole(cpu=1, command="y")},
    vc="research",
    user="ann",
    priority=100,
    model="resnet",
    expect_s=10,
    deadline_s=20,
    group="study",
    needs=("prepare",),
)


def test_a_gang_is_one_job() -> None:
    worker = Role(count=2, gpus=4, gpu_milli=500, gpu_mem_gib=8, cpu=3, memory_gib=5, name="worker")
    shape = Shape((worker, Role(cpu=1, name="watcher")), ("v100", "a100"))
    assert to_core(REQUEST, "7", Needed(("3",), ("4",))) == [
        JobSpec(
            id="7",
            shapes=(shape,),
            vc="research",
            user="ann",
            model="resnet",
            priority=100,
            expect_s=10,
            deadline_s=20,
            group=GroupRef("research/ann/study"),
            needs=("3",),
            needs_groups=("4",),
        )
    ]


def test_otherwise_every_task_is_one() -> None:
    jobs = to_core(msgspec.structs.replace(REQUEST, gang=False), "7", Needed(("3",)))
    assert [job.id for job in jobs] == ["7/worker-0", "7/worker-1", "7/watcher-0"]
    assert [job.shapes[0].gpus for job in jobs] == [4, 4, 0]
    assert [job.shapes[0].gpu_types for job in jobs] == [("v100", "a100"), ("v100", "a100"), ()]
    assert {(job.vc, job.user, job.priority, job.needs) for job in jobs} == {("research", "ann", 100, ("3",))}
    assert [job.group for job in jobs] == [
        GroupRef("7", "worker", 0),
        GroupRef("7", "worker", 1),
        GroupRef("7", "watcher"),
    ]


def test_an_elastic_job_asks_for_its_count_and_has_a_range_of_gpus() -> None:
    (job,) = to_core(msgspec.structs.replace(REQUEST, elastic=Elastic("worker", 1, 8)), "7")
    assert (job.min_gpus, job.shapes[0].gpus, job.max_gpus) == (4, 8, 32)
    (rigid,) = to_core(REQUEST, "7")
    assert (rigid.min_gpus, rigid.max_gpus) == (None, None)
