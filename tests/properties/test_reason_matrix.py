"""Why a job waits: each cause, under every policy and with virtual clusters or without. A reason is verified by making
the change that it names and seeing the job start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from remedies import explained, starts_with
from shared_worlds import SharedWorld
from tests.support import World, cluster, job, node, role, trace
from tests.support.world import WorldCourse

from skep.core.events import Event, JobHeld, NodeDrained, NodeUndrained
from skep.core.job import JobState
from skep.core.refusal import End, Refusal, Release, Succeed, Undrain, Wait
from skep.experiments.sharing import read_shared
from skep.policies.registry import policies
from skep.traces.trace import TraceJob


class Case(msgspec.Struct, frozen=True):
    """At 10 s the job `me` waits, under FIFO at least, for what `says` and `change` name."""

    nodes: str
    jobs: tuple[TraceJob, ...]
    says: str
    change: type
    script: tuple[tuple[float, Event], ...] = ()
    round_s: float = 0.0


def others(*gpus: int, **more: object) -> tuple[TraceJob, ...]:
    return tuple(job(each, work=1000.0, vc="a", id=str(number), **more) for number, each in enumerate(gpus, start=1))


def me(gpus: int = 1, **more: object) -> TraceJob:
    return job(gpus, work=1000.0, at=5.0, vc="a", id="me", **more)


def held(reason: str, until_s: float | None = None) -> tuple[tuple[float, Event], ...]:
    """The job is held while it cannot start yet, whatever the policy: its node is drained for a while."""
    return (1.0, NodeDrained("n")), (6.0, JobHeld("me", reason, until_s)), (8.0, NodeUndrained("n"))


ONE, TWO = "{count: 1, name: n, gpus: 4, gpu_type: v100}", "{count: 2, name: n, gpus: 2, gpu_type: v100}"
SMALL = "{count: 1, name: n, gpus: 4, gpu_type: v100, cpus: 8, memory_gib: 32}"

CASES = {
    "all GPUs held": Case(ONE, (*others(4), me(2)), "2 GPUs, 0 are free; job 1 holds", End),
    "several hold them": Case(ONE, (*others(2, 2), me(4)), "job 1 and job 2 hold", End),
    "a drained node": Case(TWO, (me(4),), "node n1 is drained", Undrain, ((1.0, NodeDrained("n1")),)),
    "a node and a job": Case(
        TWO, (*others(2), me(4)), "node n1 is drained; job 1 holds", Undrain, ((1.0, NodeDrained("n1")),)
    ),
    "CPUs": Case(SMALL, (*others(1, cpu=6.0), me(cpu=4.0)), "too few CPUs are left", End),
    "memory": Case(SMALL, (*others(1, memory_gib=30.0), me(memory_gib=8.0)), "too little memory is left", End),
    "CPUs without GPUs": Case(SMALL, (*others(0, cpu=6.0), me(0, cpu=4.0)), "too few CPUs are left", End),
    "parts of a GPU": Case(
        "{count: 1, name: n, gpus: 1, gpu_type: v100}",
        (*others(1, gpu_milli=700), me(gpu_milli=500)),
        "500/1000 of a GPU, 0 GPUs",
        End,
    ),
    "GPUs apart": Case(TWO, (*others(1, 1, 1), me(2)), "job", End),
    "others first": Case(ONE, (*others(4, 2), me(2)), "job 2 goes first", End),
    "many first": Case(ONE, (*others(4, *[2] * 8), me(2)), "and 3 more go first", End),
    "a hold": Case(ONE, (me(),), "held: by ann", Release, held("by ann")),
    "a back-off": Case(ONE, (me(),), "20 s left", Wait, held("back-off", 30.0)),
    "another job": Case(ONE, (*others(1), me(needs=("1",))), "waits for job 1", Succeed),
    "another job and GPUs": Case(
        ONE, (*others(1, 3), me(3, needs=("1",))), "waits for job 1; asks for 3 GPUs", Succeed
    ),
    "another job that two wait for": Case(
        ONE,
        (*others(1), job(4, work=500.0, at=2.0, vc="a", id="2", needs=("1",)), me(4, needs=("1",))),
        "job 1",
        Succeed,
    ),
    "a hold and GPUs": Case(ONE, (*others(4), me()), "held: by ann; ", Release, held("by ann")),
    "the next round": Case(ONE, (me(),), "the next one in 50 s", Wait, round_s=60.0),
}


def course_of(case: Case, policy: str, tmp_path: Path, vcs: str) -> tuple[World, WorldCourse]:
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: lab\nnodes:\n  - {case.nodes}\n{vcs}")
    there, layout = read_shared(str(file))
    jobs = trace(*case.jobs, job(0, at=10.0, id="tick", vc="b" if layout else "a", work=1.0, cpu=0.001))
    world = World(jobs, there, policy, script=case.script, round_s=case.round_s)
    if layout is not None:
        world = SharedWorld(jobs, there, policy, script=case.script, round_s=case.round_s, layout=layout)
    course = world.begin()
    while course.state.now_s < 10.0 and course.advance():
        pass
    return world, course


def waits_for(case: Case, policy: str, tmp_path: Path, vcs: str = "") -> Refusal | None:
    """Its reason, checked; None if the job runs under this policy."""
    world, course = course_of(case, policy, tmp_path, vcs)
    mine = course.state.jobs["me"]
    if mine.state is not JobState.PENDING:
        return None
    refusal = explained(course, mine)
    assert starts_with(course, world, mine, refusal.changes), refusal
    return refusal


@pytest.mark.parametrize("policy", sorted(policies()))
@pytest.mark.parametrize("name", CASES)
def test_a_reason_is_true(name: str, policy: str, tmp_path: Path) -> None:
    waits_for(CASES[name], policy, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_a_reason_names_what_is_short(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    refusal = waits_for(case, "fifo", tmp_path)
    assert refusal is not None
    assert case.says in refusal.reason
    assert case.change in map(type, refusal.changes)


@pytest.mark.parametrize("policy", ["fifo", "tiresias-l", "yarn-cs", "drf", "antman", "gandiva"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.round_s])
def test_a_reason_in_a_vc_is_true_and_names_what_is_short(name: str, policy: str, tmp_path: Path) -> None:
    """VC a has all of it, so that the causes are the same."""
    case = CASES[name]
    count = 2 if case.nodes is TWO else 1
    nodes = f"{case.nodes}\n  - {{count: 1, name: spare, gpus: 1, gpu_type: other}}"
    shared = msgspec.structs.replace(case, nodes=nodes)
    vcs = f"vcs:\n  a: {count} nodes of v100\n  b: 1 node of other\n"
    refusal = waits_for(shared, f"{policy}:borrow=never", tmp_path, vcs)
    assert refusal is None or "in VC a: " in refusal.reason or isinstance(refusal.changes[0], Release | Wait | Succeed)
    assert refusal is not None or policy != "fifo"


@pytest.mark.parametrize("vcs", ["", "vcs: {a: 1 node, b: 1 gpu}"], ids=["", "with VCs"])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cpu": 9.0}, "with 9 CPUs for a task, more than any node has beside enough GPUs"),
        ({"memory_gib": 33.0}, "with 33 GiB of memory for a task, more than any node has beside enough GPUs"),
        ({"cpu": 9.0, "memory_gib": 33.0}, "with 9 CPUs and 33 GiB of memory for a task, more than any node has"),
    ],
)
def test_a_job_that_asks_for_more_than_a_node_has_is_told_what(
    asked: dict[str, float], says: str, vcs: str, tmp_path: Path
) -> None:
    case = Case(SMALL.replace("count: 1", "count: 2"), (me(**asked),), says, End)
    course = course_of(case, "fifo", tmp_path, vcs)[1]
    assert says in course.state.jobs["me"].reason


def explained_at(world: World, at_s: float, name: str) -> Refusal:
    """The reason of this job at the first moment from then on, checked."""
    course = world.begin()
    while course.state.now_s < at_s and course.advance():
        pass
    mine = course.state.jobs[name]
    refusal = explained(course, mine)
    assert starts_with(course, world, mine, refusal.changes), refusal
    return refusal


def test_a_job_that_will_accept_another_place_is_told_who_must_end_by_then() -> None:
    """Only the first two nodes have the memory, and for 40 s it wants one node, which has too few GPUs."""
    nodes = [node(4, gpu_mem_gib=16), node(2, gpu_mem_gib=16), node(8, gpu_mem_gib=8)]
    parts = role(5, 1, gpu_milli=250, gpu_mem_gib=9.5, is_apart=True)
    jobs = trace(*others(1, 1), job(roles=(parts,), at=5.0, work=100.0, id="me"))
    refusal = explained_at(World(jobs, cluster(nodes), "fifo:patience=40"), 5.0, "me")
    assert "in 40 s it accepts to be spread; job 2 holds what it needs" in refusal.reason
    assert refusal.changes == (Wait(45.0), End(("2",)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("2", "asks for 4 GPUs, 0 are free on nodes n0 and n1, where new jobs are profiled first; job 1 holds"),
        ("3", "job 2 goes first"),
        ("after", "asks for 8 GPUs, 0 are free, 4 more on nodes n0 and n1, where new jobs are profiled; job large"),
    ],
)
def test_lucid_says_which_nodes_are_for_profiling(name: str, says: str) -> None:
    new = [job(4, work=1000.0, id=str(number), at=number) for number in range(4)]
    large = [job(8, work=1000.0, id="large"), job(8, work=1000.0, id="after", at=0.5)]
    at_s = 0.5 if name == "after" else 3.0
    assert says in explained_at(World(trace(*new, *large), cluster("4x4"), "lucid"), at_s, name).reason


def test_lucid_profiles_the_smallest_first_and_says_so() -> None:
    jobs = [
        job(4, work=500.0, id="first"),
        job(4, work=500.0, at=1.0, id="large"),
        job(1, work=900.0, at=2.0, id="small"),
    ]
    world = World(trace(*jobs), cluster("2x4"), "lucid")
    assert "job small goes first" in explained_at(world, 2.0, "large").reason
    assert "goes first" not in explained_at(world, 2.0, "small").reason


@pytest.mark.parametrize("policy", sorted(policies()))
def test_a_job_that_can_never_run_changes_no_reason_before_the_next_round(policy: str) -> None:
    never = job(12, gpu_type="v100", at=6.0, id="never", spans_types=True)
    world = World(trace(*others(2), me(), never), cluster("1x2"), policy, round_s=600.0)
    course = world.begin()
    while course.state.now_s < 6.0 and course.advance():
        pass
    assert course.state.jobs["never"].state is JobState.PENDING
    assert explained(course, course.state.jobs["me"]).reason
