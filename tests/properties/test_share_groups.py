"""Jobs that join others on their GPUs, leave, stand still and get other terms, while nodes die and owners meddle: GPU
memory is never over capacity, guarantees never above 1000, nobody stands still for ever, and fork, replay and adoption
hold (DESIGN §7)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, shared_worlds
from test_kernel import replay_and_compare
from tests.support import World, cluster, job, node, snapshot, trace
from tests.support.sharers import MODES, SHARERS
from tests.support.world import WorldCourse
from worlds import examples, fork_of, worlds

from skep.core.events import Event
from skep.core.job import JobState
from skep.core.state import State


@st.composite
def sharing(draw: st.DrawFn) -> World:
    world = draw(worlds("fifo", eventful=True))
    modes = "+".join(draw(st.lists(st.sampled_from(MODES), min_size=1, max_size=3, unique=True)))
    return msgspec.structs.replace(world, policy=f"{SHARERS}:every_s={draw(st.sampled_from([33.3, 40]))},modes={modes}")


@st.composite
def sharing_vcs(draw: st.DrawFn) -> SharedWorld:
    """Some VCs let their jobs share GPUs, others have policies that lend, borrow and preempt."""
    world = draw(shared_worlds(calm=True))
    for vc in world.layout.vcs.values():
        if draw(st.sampled_from([True, True, False])):
            vc.policy = f"{SHARERS}:every_s=40"
    return world


def modes_of(state: State) -> set[str]:
    held = [each.held for each in state.jobs.values() if each.held is not None]
    return {allocation.terms.mode for allocation in held if not allocation.is_suspended}


def advance_to_shared(data: st.DataObject, course: WorldCourse) -> None:
    """As many batches as are drawn, and on until a GPU is shared, if one ever is."""
    for _ in range(data.draw(st.integers(0, 25), label="batches")):
        course.advance()
    while modes_of(course.state) <= {""} and course.advance():
        pass


def busy(*, modes: str = "+".join(MODES)) -> World:
    jobs = [job(2, work=150.0 + number, at=float(number), gpu_mem_gib=4.0, id=f"j{number}") for number in range(14)]
    there = cluster([node(4, gpu_mem_gib=16, memory_gib=64)])
    return World(trace(*jobs), there, f"{SHARERS}:modes={modes}", restart_s=7.0)


def test_runs_have_what_they_are_drawn_for() -> None:
    """One that has it all, so that the properties below say something."""
    world = busy()
    course = world.begin()
    checker, seen = world.checker(course.state), set()
    suspended: set[str] = set()

    def look(at_s: float, events: list[Event]) -> None:
        checker(at_s, events)
        seen.update(modes_of(course.state))
        suspended.update(each.id for each in course.state.jobs.values() if each.state is JobState.SUSPENDED)

    course.finish(look)
    assert seen == {"", *MODES}
    assert suspended
    assert all(each.state is JobState.SUCCEEDED for each in course.state.jobs.values())
    used = sum(each.service_gpu_s for each in course.state.jobs.values())
    assert used <= 4 * course.state.now_s + 1e-6


@examples(30)
@given(world=sharing())
def test_a_run_is_sound(world: World) -> None:
    """Every step is checked, and nobody is left standing still."""
    course = world.begin()
    course.finish(world.checker(course.state))
    assert not [each for each in course.state.jobs.values() if each.state is JobState.SUSPENDED]


@examples(25)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    world = data.draw(sharing())
    original = world.begin()
    advance_to_shared(data, original)
    fork = original.fork(world.planner())
    assert snapshot(fork.state) == snapshot(original.state)
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


@examples(25)
@given(data=st.data())
def test_a_replay_gives_the_same_state_and_goes_on_alike(data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(sharing()))


@examples(25)
@given(data=st.data())
def test_an_adopted_run_ends_like_one_that_was_not(data: st.DataObject) -> None:
    world = data.draw(sharing())
    original = world.begin()
    advance_to_shared(data, original)
    adopted = original.adopt(world)
    adopted.finish()
    original.finish()
    assert adopted.csv() == original.csv()


@examples(25)
@given(world=sharing_vcs())
def test_virtual_clusters_hold_with_jobs_that_share(world: SharedWorld) -> None:
    """Jobs and cells are checked at every step; at the end whatever fits its VC has finished."""
    course = world.run()
    assert not [each for each in course.state.jobs.values() if each.state is JobState.SUSPENDED]


@examples(20)
@given(data=st.data())
def test_a_fork_of_virtual_clusters_goes_on_like_the_original(data: st.DataObject) -> None:
    world = data.draw(sharing_vcs())
    original, fork = fork_of(data, world)
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()
