"""Jobs that are suspended and resumed, with groups, time limits, leases, back-off and nodes that come and go: whatever
holds of other runs holds of these (DESIGN §7)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, planner_of, shared_worlds
from test_kernel import replay_and_compare
from tests.support import World, check, cluster, job, node, snapshot, trace
from tests.support.shared_invariants import check_shared
from tests.support.turns import TURNS
from tests.support.world import WorldCourse
from worlds import examples, fork_of, worlds

from skep.clusters.read import read_text
from skep.core.events import Event
from skep.core.job import JobState
from skep.core.state import State
from skep.core.timers import TimerKind
from skep.experiments.sharing import hardware_cluster


@st.composite
def turning(draw: st.DrawFn) -> World:
    """Slices longer than a restart, so that everybody gets on."""
    world = draw(worlds("fifo", eventful=True))
    policy = draw(st.sampled_from([f"{TURNS}:slice_s=40", f"{TURNS}:slice_s=33.3,lease_s=75"]))
    return msgspec.structs.replace(world, policy=policy)


@st.composite
def turning_vcs(draw: st.DrawFn) -> SharedWorld:
    """Some VCs let their jobs take turns, others have policies that lend, borrow and preempt."""
    world = draw(shared_worlds(calm=True))
    for vc in world.layout.vcs.values():
        if draw(st.sampled_from([True, True, False])):
            vc.policy = draw(st.sampled_from([f"{TURNS}:slice_s=40", f"{TURNS}:slice_s=25,lease_s=60"]))
    return world


def suspended(state: State) -> list[str]:
    return [each.id for each in state.jobs.values() if each.state is JobState.SUSPENDED]


def advance_to_a_suspension(data: st.DataObject, course: WorldCourse) -> None:
    """As many batches as are drawn, and on until somebody is suspended, if anybody ever is."""
    for _ in range(data.draw(st.integers(0, 25), label="batches")):
        course.advance()
    while not suspended(course.state) and course.advance():
        pass


def test_runs_have_what_they_are_drawn_for() -> None:
    """One that has it all, so that the properties below say something."""
    jobs = [job(2, work=150.0 + number, at=float(number), gpu_mem_gib=4.0, id=f"j{number}") for number in range(8)]
    for number in (1, 3):
        limited = msgspec.structs.replace(jobs[number].spec, time_limit_s=170.0)
        jobs[number] = msgspec.structs.replace(jobs[number], spec=limited)
    world = World(trace(*jobs), cluster([node(4, gpu_mem_gib=16, memory_gib=64)]), f"{TURNS}:lease_s=80", restart_s=7.0)
    course = world.begin()
    checker, seen = world.checker(course.state), set()

    def look(at_s: float, events: list[Event]) -> None:
        checker(at_s, events)
        seen.update(timer.kind for timer in course.state.timers.all())
        seen.update(each.held.memory for each in course.state.jobs.values() if each.held is not None)

    course.finish(look)
    assert seen == {TimerKind.LIMIT, TimerKind.LEASE, None, "resident", "swapped"}
    ended = {each.id: each.state for each in course.state.jobs.values()}
    assert all(state.is_final for state in ended.values())
    assert {name for name, state in ended.items() if state is JobState.STOPPED} <= {"j1", "j3"}


@examples(50)
@given(world=turning())
def test_a_run_is_sound(world: World) -> None:
    """Every step is checked, and nobody is left standing still."""
    course = world.begin()
    course.finish(world.checker(course.state))
    assert not suspended(course.state)


@examples(50)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    world = data.draw(turning())
    original = world.begin()
    advance_to_a_suspension(data, original)
    fork = original.fork(world.planner())
    assert snapshot(fork.state) == snapshot(original.state)
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


@examples(40)
@given(data=st.data())
def test_a_replay_gives_the_same_state_and_goes_on_alike(data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(turning()))


@examples(50)
@given(world=turning_vcs())
def test_virtual_clusters_hold_with_jobs_that_take_turns(world: SharedWorld) -> None:
    """Jobs and cells are checked at every step; at the end whatever fits its VC has finished."""
    course = world.run()
    assert not suspended(course.state)


@examples(40)
@given(data=st.data())
def test_a_fork_of_virtual_clusters_goes_on_like_the_original(data: st.DataObject) -> None:
    world = data.draw(turning_vcs())
    original, fork = fork_of(data, world)
    check_shared(fork.state, planner_of(fork))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


VCS = """
nodes: [{count: 2, name: n, gpus: 2}]
vcs: {a: 1 nodes, b: 1 nodes}
"""


def test_jobs_of_a_vc_take_turns_on_its_own_cells() -> None:
    """Two jobs of `a` want its node whole. The job of `b` runs as if it were alone, and an opportunistic one waits."""
    layout = read_text(VCS, "lab.yaml")[1]
    jobs = [
        job(2, work=100.0, vc="a", id="a0"),
        job(2, work=100.0, vc="a", id="a1"),
        job(2, work=150.0, vc="b", id="b0"),
    ]
    jobs.append(job(1, work=10.0, vc="a", priority=-1, at=5.0, id="low"))
    policy = f"{TURNS}:slice_s=30"
    assert layout is not None
    world = SharedWorld(trace(*jobs), hardware_cluster(layout), policy, checkpoint_s=0.0, layout=layout)
    course = world.begin()
    stood: set[str] = set()

    def look(at_s: float, events: list[Event]) -> None:
        check(course.state)
        check_shared(course.state, planner_of(course))
        stood.update(suspended(course.state))
        places = {each.id: each.bound.nodes() for each in course.state.jobs.values() if each.bound is not None}
        assert places.get("a0", [0]) == places.get("a1", [0]) == [0]

    course.finish(look)
    assert "a1" in stood
    rows = {row.job_id: row for row in course.rows()}
    assert (rows["b0"].start_s, rows["b0"].finish_s) == (0, 150)
    assert max(rows["a0"].finish_s or 0, rows["a1"].finish_s or 0) == 200
    assert rows["low"].start_s == 150  # on the cells that `b` no longer uses
