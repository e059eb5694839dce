"""A policy decides by what it declares: a change of the length of a job after t changes no decision before t, unless
the policy knows durations. The jobs are of every kind, with progress and deadlines, alone and in virtual clusters."""

from __future__ import annotations

import math
import zlib

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from shared_worlds import SharedWorld, shared_worlds
from test_gpu_time import any_jobs
from tests.support import World, trace
from tests.support.world import WorldCourse
from worlds import examples, policy_specs, worlds

from skep.core.events import Event, JobSubmitted, TasksExited
from skep.core.needs import Need
from skep.core.view import JobView
from skep.experiments.owners import knows_durations, shown_jobs
from skep.policies import Order
from skep.policies.own import name_class
from skep.policies.registry import needs_of, policies
from skep.traces.trace import Trace, TraceJob

every_policy = pytest.mark.parametrize("name", sorted(policies()))

BLIND = ("fifo:walk=skip", "tiresias-l:queues=100+400", "drf", "yarn-cs")

Story = list[tuple[float, tuple[str, ...]]]
"""What happened at each instant."""


def story(course: WorldCourse, until_s: float) -> Story:
    """Every event before this time but submissions: starts, moves, stops and what follows from them."""
    found: Story = []

    def observe(at_s: float, events: list[Event]) -> None:
        if at_s < until_s:
            found.append((at_s, tuple(repr(each) for each in events if not isinstance(each, JobSubmitted))))

    while course.state.now_s < until_s and course.advance(observe):
        assert course.batches < 20_000
    return found


def ends(course: WorldCourse) -> dict[str, float]:
    """When each job leaves for good, and for how long it has worked then."""
    found: dict[str, float] = {}

    def observe(at_s: float, events: list[Event]) -> None:
        found.update(
            (each.job_id, at_s) for each in events if isinstance(each, TasksExited) and each.exit == "finished"
        )

    course.finish(observe)
    return found


def with_length(entry: TraceJob, work_s: float) -> TraceJob:
    """The same job with another length, of which everything that a trace derives from it is another too."""
    said = {} if math.isinf(work_s) else {"expect_s": work_s}
    return TraceJob(entry.submit_s, work_s, msgspec.structs.replace(entry.spec, **said))


def check(data: st.DataObject, world: World, needs: frozenset[Need]) -> None:
    """Make one job longer: nothing before its first end can change. What is not declared is not submitted, as in an
    experiment."""
    told = msgspec.structs.replace(world, trace=seen_by(world.trace, needs))
    finished = ends(told.begin())
    if not finished:
        return
    name = data.draw(st.sampled_from(sorted(finished)), label="the job that becomes longer")
    factor = data.draw(st.sampled_from([1.5, 10.0]), label="longer by")
    entries = [
        with_length(entry, entry.work_s * factor + 1.0) if entry.spec.id == name else entry
        for entry in world.trace.jobs
    ]
    changed = msgspec.structs.replace(world, trace=msgspec.structs.replace(world.trace, jobs=entries))
    longer = msgspec.structs.replace(changed, trace=seen_by(changed.trace, needs))
    until_s = finished[name]
    assert story(longer.begin(), until_s) == story(told.begin(), until_s)


def seen_by(given: Trace, needs: frozenset[Need]) -> Trace:
    return msgspec.structs.replace(given, jobs=shown_jobs(given.jobs, needs))


@every_policy
@examples(25)
@given(data=st.data())
def test_the_length_of_a_job_is_not_known_before_its_end(name: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(any_jobs(), min_size=2, max_size=10))
    world: World = data.draw(worlds(name))
    if data.draw(st.booleans(), label="any kind of job"):
        world = msgspec.structs.replace(world, trace=trace(*drawn), script=())
    needs = needs_of(world.policy)
    if not knows_durations(needs, world.trace, 0.0):
        check(data, world, needs)


@every_policy
@examples(10)
@given(data=st.data())
def test_nor_in_a_virtual_cluster(name: str, data: st.DataObject) -> None:
    """With the policy in all VCs but those that have their own."""
    drawn: SharedWorld = data.draw(shared_worlds(policies=BLIND))
    world = msgspec.structs.replace(drawn, policy=data.draw(policy_specs(name)), round_s=0.0)
    policies_there = {world.policy, *(vc.policy for vc in world.layout.vcs.values() if vc.policy)}
    needs = frozenset().union(*map(needs_of, policies_there))
    if not knows_durations(needs, world.trace, 0.0):
        check(data, world, needs)


FIGURES = sorted(name for name in vars(JobView) if not name.startswith("_"))


class Curious(Order):
    """Goes by all of a job that a policy can read which declares nothing: its speed, its work so far, its text."""

    preemptive = True

    def key(self, job: JobView, now_s: float) -> int:
        found = [getattr(job, name) for name in FIGURES]
        said = [repr(each(now_s) if callable(each) else each) for each in found if each is not job.waiting]
        return zlib.crc32(" ".join(said).encode()) // 2**24


@examples(25)
@given(data=st.data())
def test_nor_to_one_that_reads_all_that_needs_no_declaration(data: st.DataObject) -> None:
    """Among it the work that a job has done: it tells the past only."""
    world: World = data.draw(worlds("fifo", plain=True))
    world = msgspec.structs.replace(world, policy=name_class(Curious), round_s=60.0, restart_s=0.0, checkpoint_s=0.0)
    assert needs_of(world.policy) == {Need.CHECKPOINT}
    check(data, world, needs_of(world.policy))


def test_the_property_finds_an_oracle() -> None:
    """The shortest first, as if it had declared nothing."""
    with pytest.raises(AssertionError):
        find_with("sjf")


def find_with(policy: str) -> None:
    @settings(max_examples=200, phases=[Phase.generate])  # the first one found is enough
    @given(data=st.data())
    def search(data: st.DataObject) -> None:
        world: World = data.draw(worlds(policy, plain=True, calm=True))
        check(data, world, needs_of(world.policy))

    search()
