"""A simulator that is given a state and the work that is left goes on as the one that brought the state there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import shared_worlds
from test_elastic import elastic, reporting
from test_turns import advance_to_a_suspension, turning, turning_vcs
from tests.support import World
from tests.support.world import WorldCourse
from worlds import examples, taken_up, worlds

from skep.policies.registry import policies


def begun(data: st.DataObject, world: World) -> WorldCourse:
    course = world.begin()
    for _ in range(data.draw(st.integers(0, 25), label="batches before")):
        if not course.advance():
            break
    return course


def check_goes_on_alike(world: World, original: WorldCourse) -> None:
    adopted = original.adopt(world)
    adopted.finish()
    original.finish()
    assert adopted.csv() == original.csv()


@pytest.mark.parametrize("name", sorted(policies()))
@examples(20)
@given(data=st.data())
def test_an_adopted_run_ends_like_one_that_was_not(name: str, data: st.DataObject) -> None:
    world = data.draw(taken_up(name))
    check_goes_on_alike(world, begun(data, world))


@examples(25)
@given(data=st.data())
def test_with_suspended_jobs(data: st.DataObject) -> None:
    world = data.draw(turning())
    original = world.begin()
    advance_to_a_suspension(data, original)
    check_goes_on_alike(world, original)


@examples(15)
@given(data=st.data())
def test_with_elastic_jobs(data: st.DataObject) -> None:
    world = data.draw(worlds("afs-l").flatmap(elastic))
    check_goes_on_alike(world, begun(data, world))


@examples(25)
@given(data=st.data())
def test_with_sizes_that_follow_reported_speeds(data: st.DataObject) -> None:
    world = data.draw(worlds("afs-l").flatmap(elastic).flatmap(reporting))
    check_goes_on_alike(world, begun(data, world))


@examples(15)
@given(data=st.data())
def test_with_virtual_clusters(data: st.DataObject) -> None:
    world = data.draw(shared_worlds(calm=True))
    check_goes_on_alike(world, begun(data, world))


@examples(40)
@given(data=st.data())
def test_with_virtual_clusters_while_nodes_are_bad(data: st.DataObject) -> None:
    """Which bad cells VCs are shown is remembered. In rounds a planner processes lost nodes after exits:
    one that begins within the round knows these already."""
    world = data.draw(shared_worlds().filter(lambda world: bool(world.outages)))
    check_goes_on_alike(world, begun(data, world))


@examples(15)
@given(data=st.data())
def test_with_virtual_clusters_and_suspended_jobs(data: st.DataObject) -> None:
    world = data.draw(turning_vcs())
    original = world.begin()
    advance_to_a_suspension(data, original)
    check_goes_on_alike(world, original)
