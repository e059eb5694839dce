"""What must hold in every world, under every policy with any knobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World
from worlds import examples, finish_explaining, worlds

from skep.core.job import JobState
from skep.core.needs import Need
from skep.policies.registry import needs_of, policies

EVERY = sorted(policies())
SOME = examples(60)
every_policy = pytest.mark.parametrize("name", EVERY)


@every_policy
@SOME
@given(data=st.data())
def test_a_run_is_sound(name: str, data: st.DataObject) -> None:
    world = data.draw(worlds(name))
    course = world.run()
    work = {job.spec.id: job.work_s for job in world.trace.jobs}
    touched = {job.spec.id: job.spec.shapes[0].gpus for job in world.trace.jobs}
    shares = Need.SHARE in needs_of(world.policy)
    for row in course.rows():
        if row.state == JobState.SUCCEEDED:
            assert row.jct_s is not None
            assert row.jct_s - row.run_s >= -1e-6
            assert row.queue_s == pytest.approx(row.jct_s - row.run_s, abs=1e-6)
            if shares:  # A part may get more than was asked for, and whole GPUs less, at the speed that follows.
                most = touched[row.job_id]
                assert row.run_s * most >= work[row.job_id] * row.gpus - 1e-6
                assert -1e-6 <= row.service_gpu_s <= row.run_s * most + 1e-3
            else:
                assert row.run_s >= work[row.job_id] - 1e-6
                assert row.service_gpu_s <= row.run_s * row.gpus + 1e-3
                if not row.resizes:  # Else it ran on fewer GPUs for a while.
                    assert row.service_gpu_s == pytest.approx(row.run_s * row.gpus, abs=1e-3)
            assert row.queue_quota_s + row.queue_fragmentation_s <= row.queue_s + 1e-6
        elif row.state != JobState.STOPPED:  # By its owner, by its group or at its time limit it may have run.
            assert row.start_s is None
    assert course.csv() == world.run().csv()


@every_policy
@examples(15)
@given(data=st.data())
def test_every_pending_job_can_be_explained_at_any_moment(name: str, data: st.DataObject) -> None:
    world: World = data.draw(worlds(name))
    finish_explaining(world.begin())
