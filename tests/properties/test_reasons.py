"""Every pending job has a reason, and the reason is true: the change that it names, made, starts the job."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remedies import can_be_made, explained, starts_with
from shared_worlds import SharedWorld, shared_worlds
from tests.support import World
from worlds import examples, worlds

from skep.core.job import JobState
from skep.core.model import JobSpec
from skep.core.refusal import NEVER
from skep.core.snapshot import dump
from skep.policies.registry import policies

# Their order and their places depend on more than the queue: on the history that the ended jobs add to (lucid), on
# moves in the same round (antman), on the promises of other jobs (singularity).
WITHOUT_ROUNDS = ("antman", "lucid", "singularity")
LEARNS = ("tiresias-g", "pollux", "sia", *(name for name in policies() if name.startswith("gavel-")))
"""A job that ends for the remedy is a new sample, or a new question to the solver, after which others may go first: the
reasons of these policies are not tried here (`test_reason_matrix.py` does)."""


BATCHES_MAX = 30
"""Some worlds have thousands of moments, and at each of them there is a fork for every pending job."""


def check(world: World) -> None:
    course = world.begin()
    while course.advance() and course.batches <= BATCHES_MAX:
        for job in list(course.state.jobs.values()):
            if job.state is JobState.PENDING:
                refusal = explained(course, job)
                assert refusal.reason
                assert refusal.remedy
                if refusal.code != NEVER and can_be_made(course.state, refusal.changes):
                    assert starts_with(course, world, job, refusal.changes), (course.state.now_s, job.id, refusal)


@pytest.mark.parametrize("name", sorted(policies()))
@examples(6)
@given(data=st.data())
def test_what_a_reason_names_starts_the_job(name: str, data: st.DataObject) -> None:
    world = data.draw(worlds(name))
    if name in LEARNS:
        pytest.skip("ending jobs changes what the policy has learned, and so who goes first")
    if name in WITHOUT_ROUNDS:
        world = msgspec.structs.replace(world, round_s=0.0, finish_at_boundary=False)
    if name == "singularity":
        entries = [msgspec.structs.replace(job, spec=unpromised(job.spec)) for job in world.trace.jobs]
        world = msgspec.structs.replace(world, trace=msgspec.structs.replace(world.trace, jobs=entries))
    check(world)


def unpromised(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(spec, share=None)


@examples(25)
@given(world=shared_worlds(rounds=False))
def test_what_a_reason_names_starts_the_job_of_a_vc(world: SharedWorld) -> None:
    check(world)


@pytest.mark.parametrize("name", sorted(policies()))
@examples(4)
@given(data=st.data())
def test_explaining_changes_nothing(name: str, data: st.DataObject) -> None:
    compare_explained(data.draw(worlds(name)))


@examples(15)
@given(world=shared_worlds())
def test_explaining_changes_nothing_in_vcs(world: SharedWorld) -> None:
    compare_explained(world)


def compare_explained(world: World) -> None:
    """A run in which every pending job is explained at every moment is the same as one without, and so is each state
    before and after."""
    course, silent = world.begin(), world.begin()

    def explain(at_s: float, events: object) -> None:
        before = dump(course.state)
        for job in course.state.jobs.values():
            if job.state is JobState.PENDING:
                explained(course, job)
        assert dump(course.state) == before

    course.finish(explain)
    silent.finish()
    assert course.csv() == silent.csv()
