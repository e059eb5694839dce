"""Virtual clusters beneath every policy: what tenants own is theirs, whatever others run (DESIGN §3, §7)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, planner_of, shared_worlds
from tests.support import job, role, take_trigger, trace
from tests.support.shared_invariants import check_shared, unserved
from tests.support.snapshot import snapshot, snapshot_cluster
from worlds import examples, finish_explaining, fork_of

from skep.clusters import read_layout
from skep.core.events import Exit, JobSubmitted, TasksExited
from skep.core.record import joined, repeat
from skep.core.snapshot import dump, load
from skep.experiments.sharing import hardware_cluster
from skep.metrics.run import JobRow
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE

WALKS_ON = ("fifo:walk=skip", "sjf:walk=skip", "drf:walk=skip", "yarn-cs:walk=skip,take_back=2")
"""A job that does not fit keeps no other from starting."""


def outcome(row: JobRow) -> tuple[object, ...]:
    return (row.job_id, row.start_s, row.finish_s, row.preemptions, row.state)


@pytest.mark.slow
@examples(120)
@given(world=shared_worlds())
def test_a_run_is_sound_and_everybody_gets_through(world: SharedWorld) -> None:
    """Jobs and cells are checked at every step; at the end whatever fits its VC has finished."""
    course = world.run()
    assert course.csv() == world.run().csv()


@pytest.mark.parametrize("sharing", [PRIVATE, NUMBERS])
@examples(40)
@given(world=shared_worlds())
def test_so_it_is_with_private_clusters_and_with_quotas_by_number(sharing: str, world: SharedWorld) -> None:
    world.shared_as(sharing).run()


@examples(120)
@given(world=shared_worlds(borrow="never", guaranteed=True, calm=True))
def test_with_all_work_guaranteed_the_shared_cluster_is_as_good_as_private_ones(world: SharedWorld) -> None:
    """The headline: the same starts, finishes and preemptions, job by job."""
    shared, private = world.run(), world.shared_as(PRIVATE).run()
    assert [*map(outcome, shared.rows())] == [*map(outcome, private.rows())]


@examples(80)
@given(world=shared_worlds(calm=True))
def test_a_vc_that_does_not_borrow_notices_nothing_of_others_that_do(world: SharedWorld) -> None:
    """Neither their borrowing nor opportunistic work changes when its jobs start, finish or are preempted."""
    apart = {vc for vc in world.layout.vcs if world.policy_of(vc).endswith("borrow=never")}
    private = world.without_opportunistic().shared_as(PRIVATE).run()
    expected = {row.job_id: outcome(row) for row in private.rows() if row.vc in apart}
    shared = {row.job_id: outcome(row) for row in world.run().rows() if row.job_id in expected}
    assert shared == expected


@examples(80)
@given(world=shared_worlds(calm=True, rounds=False, policies=WALKS_ON))
def test_a_guaranteed_job_that_fits_the_free_cells_of_its_vc_does_not_wait(world: SharedWorld) -> None:
    """Whatever others borrow."""
    course = world.begin()
    while course.advance():
        assert not unserved(course.state, planner_of(course))


@examples(100)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(shared_worlds(calm=True)))
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(50)
@given(data=st.data())
def test_a_fork_is_sound_while_nodes_are_bad(data: st.DataObject) -> None:
    """It is shown the same bad cells as the original, and goes on alike."""
    original, fork = fork_of(data, data.draw(shared_worlds(rounds=False)))
    check_shared(fork.state, planner_of(fork))
    fork.finish(lambda at_s, events: check_shared(fork.state, planner_of(fork)))
    original.finish()
    assert fork.csv() == original.csv()


RACKS = """
nodes: [{racks}]
vcs: {{a: [1 rack, 3 gpus], b: [1 rack, 3 gpus]}}
"""


@pytest.mark.parametrize("policy", ["afs-l", "srsf"])
def test_a_vc_sees_at_once_that_a_released_cell_is_bound_to_a_bad_node(tmp_path: Path, policy: str) -> None:
    """Every rack has a bad node. When j1 ends, the cells of its VC are bound anew before the next job starts."""
    racks = ", ".join(f"{{count: 2, name: r{n}n, gpus: 4, switch: 2, rack: r{n}}}" for n in range(4))
    (tmp_path / "lab.yaml").write_text(RACKS.format(racks=racks))
    layout = read_layout(str(tmp_path / "lab.yaml"))
    head = role(1, 1, name="head")
    jobs = [
        job(roles=(role(3, 1), head), vc="a", at=17.0, id="j1"),
        job(4, vc="a", at=100.0, work=131.0, id="j0"),
        job(roles=(role(2, 2), head), vc="a", at=141.0, work=156.0, id="j2"),
    ]
    down = ((1, 100.0, 300.0), (2, 37.5, 237.5), (4, 37.5, 42.5), (4, 52.5, 57.5), (5, 37.5, 237.5), (6, 10.0, 210.0))
    where = hardware_cluster(layout)
    SharedWorld(trace(*jobs), where, policy, outages=(*down, (7, 100.0, 300.0)), layout=layout).run()


@examples(40)
@given(data=st.data())
def test_a_fork_within_a_round_goes_on_alike_while_nodes_are_bad(data: st.DataObject) -> None:
    original, fork = fork_of(
        data, data.draw(shared_worlds().filter(lambda world: bool(world.outages and world.round_s)))
    )
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


@examples(40)
@given(world=shared_worlds())
def test_every_pending_job_can_be_explained_at_any_moment(world: SharedWorld) -> None:
    finish_explaining(world.begin())


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS])
@examples(60)
@given(data=st.data())
def test_a_plan_of_a_shared_cluster_is_taken_back_exactly(sharing: str, data: st.DataObject) -> None:
    """To any mark: what is left of it is what the decisions before that mark make of the state."""
    world = data.draw(shared_worlds(calm=True, rounds=False)).shared_as(sharing)
    course = world.begin()
    for _ in range(data.draw(st.integers(0, 30))):
        if not course.advance():
            break
    written = dump(course.state)
    state, plain = (load(written, course.state.cluster.blank()) for _ in range(2))
    planner = world.planner()
    state.show(planner)
    planner.attach(state, state.memory)
    for each in (state, plain):
        each.now_s += 1.0
        leaving = [held for held in each.held_jobs.values() if held.seq % 2]
        for held in leaving:
            each.advance(each.now_s, [TasksExited(held.id, Exit.FINISHED, held.work_s)])
        for number, entry in enumerate(world.trace.jobs):
            each.advance(
                each.now_s,
                [JobSubmitted(msgspec.structs.replace(entry.spec, id=f"more {number}", priority=number % 3 - 1))],
            )
    trigger = take_trigger(state)
    before = snapshot(state)
    plan = planner.plan(state, state.memory, trigger)
    marks = sorted(data.draw(st.lists(st.integers(0, plan.mark()), max_size=3)), reverse=True)
    for mark in marks:
        plan.rollback(mark)
        again = plain.new_plan()
        for together in joined(plan.decisions):
            repeat(plain, again, together)
        assert snapshot_cluster(state.cluster) == snapshot_cluster(plain.cluster)
        assert [one.state for one in state.jobs.values()] == [one.state for one in plain.jobs.values()]
        again.rollback(0)
    plan.rollback(0)
    assert snapshot(state) == before
