"""Share modes: who may stand beside whom, and other terms for jobs that run."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import check, cluster, job, node, snapshot, take_trigger, trace
from tests.support.invariants import check_books

from skep.core.actions import Launch, Move, Reshare
from skep.core.checked import BadPlan, checked_plan
from skep.core.cluster import WHOLE, Allocation, Slice, Tenant
from skep.core.errors import InvariantBroken
from skep.core.events import Exit, JobSubmitted, ProgressReported, TasksExited, TasksMoved, TasksStarted
from skep.core.job import JobState
from skep.core.plan import Decision, Plan
from skep.core.record import PlanRecord, decode_plan, encode_plan, record, replay
from skep.core.share import EXCLUSIVE, MIG_PROFILES, MODES, SHARED, clash, fault_of
from skep.core.snapshot import dump, fork, load
from skep.core.state import State

ONE = Allocation((Slice(0, 0b1, gpu_mem_mib=4096),), 1)
TURNS = ONE.on_terms(mode="slice", milli=0, limit=WHOLE, group="g", weight=2, quantum_ms=500)
PACKED = ONE.on_terms(mode="pack", milli=0, limit=WHOLE)


def tenant(mode: str = "", milli: int = 0, limit: int = 0, *, slot: int = 0, group: str = "") -> Tenant:
    return Tenant(1, milli, limit or milli, 0, mode, slot, group)


def test_the_table_says_of_every_mode_what_isolates_its_tenants() -> None:
    assert SHARED | {EXCLUSIVE} == set(MODES)
    for mode in MODES.values():
        assert mode.guarantee
        assert mode.memory
        assert mode.compute


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (tenant(milli=300, limit=600), "needs a share mode"),
        (tenant("nosuch", 300), "no share mode"),
        (tenant(EXCLUSIVE, 1000), "no share mode"),
        (tenant("pack", 0), "must have a limit"),
        (tenant("mps", 300, 600), "not use more"),
        (tenant("slice", 0, 1000), "must have a share group"),
        (tenant("token", 300, 1001), "no part of a GPU"),
        (tenant("mig", 300), "no MIG profile"),
        (tenant("mig", MIG_PROFILES["3g"].milli, slot=1), "no MIG profile"),
    ],
)
def test_a_tenant_is_what_its_mode_allows(wrong: Tenant, says: str) -> None:
    assert says in fault_of(wrong)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (tenant(milli=500), tenant(milli=500), ""),
        (tenant(milli=500), tenant("pack", 0, 1000), "pack beside exclusive"),
        (tenant("lend", 1000), tenant("lend", 0, 1000), ""),
        (tenant("slice", 0, 1000, group="a"), tenant("slice", 0, 1000, group="a"), ""),
        (tenant("slice", 0, 1000, group="a"), tenant("slice", 0, 1000, group="b"), "share group b beside a"),
        (tenant("lane", 0, 1000, group="a"), tenant("lane", 0, 1000, group="b"), ""),
        (tenant(milli=1000), tenant(), ""),
        (tenant("mig", 428), tenant("mig", 428, slot=4), ""),
        (tenant("mig", 571), tenant("mig", 142, slot=3), "slot 3 is taken"),
        (tenant("mig", 428), tenant("mig", 142, slot=3), "slot 3 is taken"),
        (tenant("mig", 571), tenant("mig", 285, slot=4), ""),
    ],
)
def test_who_may_run_beside_whom(first: Tenant, second: Tenant, says: str) -> None:
    assert clash(second, [first]) == says
    assert bool(clash(first, [second])) == bool(says)


def test_the_ledger_asks_before_it_books() -> None:
    there = cluster([node(1, gpu_mem_gib=16)])
    there.take(TURNS, 0)
    gpu = there.nodes[0]
    assert gpu.free == 0
    assert gpu.milli_left(0) == WHOLE
    assert gpu.clash(0, tenant("slice", 0, 1000, group="g")) == ""
    for other, says in [(ONE, "exclusive beside slice"), (PACKED, "pack beside slice")]:
        with pytest.raises(InvariantBroken, match=says):
            there.take(other, 1)
    there.take(TURNS, 1)
    there.take(TURNS, 2)
    there.take(TURNS, 3)
    with pytest.raises(InvariantBroken, match="20480 MiB"):
        there.take(TURNS, 4)


def test_a_guaranteed_job_takes_a_gpu_on_which_only_opportunistic_ones_are() -> None:
    there = cluster([node(2, gpu_mem_gib=16)])
    blank = there.nodes[0].free_mask
    spare = ONE.on_terms(mode="lend", milli=0, limit=WHOLE)
    owner = ONE.on_terms(mode="lend", milli=WHOLE, limit=WHOLE)
    there.take(spare, 1)
    there.take(owner, 0)
    assert [each.owner for each in there.nodes[0].tenants(0)] == [0, 1]
    with pytest.raises(InvariantBroken, match="2000 milli"):
        there.take(owner, 2)
    there.give(owner, 0)
    assert there.nodes[0].free_mask == 0b10
    there.give(spare, 1)
    assert there.nodes[0].free_mask == blank


def test_jobs_of_a_lane_have_the_memory_of_the_largest_in_common() -> None:
    gib = 1024
    there = cluster([node(1, gpu_mem_gib=16)])
    left, held = [], []
    for owner, (kept, ephemeral, lane) in enumerate([(2, 6, "a"), (1, 5, "b"), (1, 4, "b")]):
        piece = Slice(0, 0b1, 0, (kept + ephemeral) * gib, limit=WHOLE, mode="lane", group=lane)
        allocation = Allocation((msgspec.structs.replace(piece, ephemeral_mib=ephemeral * gib),), 1)
        there.take(allocation, owner)
        left.append(there.nodes[0].memory_left(0) // gib)
        held.append((owner, allocation))
    assert left == [8, 2, 1]
    while held:
        check_books(there, held)
        owner, allocation = held.pop()
        there.give(allocation, owner)


def world() -> State:
    state = State(cluster([node(2, gpu_mem_gib=16)]))
    for entry in trace(job(1, id="a", gpu_mem_gib=4), job(1, id="b", gpu_mem_gib=4)).jobs:
        state.advance(state.now_s, [JobSubmitted(entry.spec)])
    plan = state.new_plan()
    plan.start(state.jobs["a"], ONE)
    carry_out(state, plan)
    take_trigger(state)
    return state


def carry_out(state: State, plan: Plan) -> list[object]:
    state.commit(plan)
    actions = state.send()
    for action in actions:
        if isinstance(action, Launch):
            state.advance(state.now_s, [TasksStarted(action.job_id, 1.0, state.now_s)])
    check(state)
    return list(actions)


def join(state: State) -> Plan:
    """Job `b` joins `a` on its GPU: they take turns."""
    plan = state.new_plan()
    with plan.bundle():
        plan.reshare(state.jobs["a"], TURNS)
        plan.start(state.jobs["b"], TURNS)
    return plan


def test_a_job_gets_other_terms_without_a_restart() -> None:
    state = world()
    actions = carry_out(state, join(state))
    assert actions == [Reshare("a", 1, TURNS), Launch("b", TURNS, 1)]
    assert state.jobs["a"].held == TURNS
    assert (state.jobs["a"].launches, state.jobs["a"].migrations, state.jobs["a"].resizes) == (1, 0, 0)
    assert state.jobs["a"].state is JobState.RUNNING


def test_a_reshare_is_taken_back_exactly() -> None:
    state = world()
    before = snapshot(state)
    plan = join(state)
    plan.rollback(0)
    assert snapshot(state) == before


def test_all_terms_change_at_once_or_none() -> None:
    state = world()
    carry_out(state, join(state))
    a, b = state.jobs["a"], state.jobs["b"]
    plan = state.new_plan()
    with pytest.raises(InvariantBroken, match="pack beside slice"):
        plan.reshare(a, PACKED)
    before = snapshot(state)
    with pytest.raises(InvariantBroken):
        plan.reshare_all([(a, PACKED), (b, ONE)])
    assert snapshot(state) == before
    plan.reshare_all([(a, PACKED), (b, PACKED)])
    assert carry_out(state, plan) == [Reshare("a", 1, PACKED), Reshare("b", 1, PACKED)]


def test_a_job_has_its_gpus_to_itself_only_when_a_neighbour_has_moved_away() -> None:
    """Both are decided in one plan; a move takes a while, other terms do not."""
    state = world()
    carry_out(state, join(state))
    a, b = state.jobs["a"], state.jobs["b"]
    state.advance(1.0, [TasksStarted("b", 1, 1.0)])
    plan = state.new_plan()
    there = Allocation((Slice(0, 0b10, gpu_mem_mib=4096),), 1)
    plan.move(b, there)
    plan.reshare(a, ONE)
    (move,) = carry_out(state, plan)
    assert isinstance(move, Move)
    assert a.held == TURNS
    state.advance(2.0, [TasksMoved("b", there, 0.0, 1.0, 0.0, move.launch)])
    assert state.send() == [Reshare("a", 1, ONE)]


def test_replay_snapshot_and_fork_know_the_terms() -> None:
    state, twin = world(), world()
    plan = join(state)
    logged = decode_plan(encode_plan(plan))
    carry_out(state, plan)
    carry_out(twin, replay(twin, logged))
    assert snapshot(state) == snapshot(twin)
    assert snapshot(load(dump(state), cluster([node(2, gpu_mem_gib=16)]))) == snapshot(state)
    other = fork(state)
    packed = state.new_plan()
    packed.reshare_all([(state.jobs["a"], PACKED), (state.jobs["b"], PACKED)])
    checked = checked_plan(other, record(packed))
    carry_out(state, packed)
    carry_out(other, checked)
    assert snapshot(other) == snapshot(state)


@pytest.mark.parametrize(
    "after",
    [ONE.parked(), ONE.on_terms(milli=500), ONE.on_terms(mode="pack", milli=0, limit=500)],
    ids=["left without compute", "half of what it asks for", "a limit below what it asks for"],
)
def test_terms_that_are_not_what_the_job_asks_for_are_refused(after: Allocation) -> None:
    state = world()
    before = snapshot(state)
    with pytest.raises(BadPlan):
        checked_plan(state, PlanRecord([Decision("a", ONE, after)]))
    assert snapshot(state) == before


def test_a_job_that_is_elsewhere_or_stands_still_has_no_terms() -> None:
    state = world()
    plan = state.new_plan()
    with pytest.raises(InvariantBroken, match="must stay the same"):
        plan.reshare(state.jobs["a"], Allocation((Slice(0, 0b10, gpu_mem_mib=4096),), 1))
    with pytest.raises(InvariantBroken, match="only a launching or running job"):
        plan.reshare(state.jobs["b"], ONE)
    plan.suspend(state.jobs["a"])
    with pytest.raises(InvariantBroken, match="only a launching or running job"):
        plan.reshare(state.jobs["a"], ONE)


def test_terms_that_change_in_the_plan_of_the_start_are_one_launch() -> None:
    state = world()
    plan = state.new_plan()
    apart = Allocation((Slice(0, 0b10, gpu_mem_mib=4096),), 1)
    plan.start(state.jobs["b"], apart)
    plan.reshare(state.jobs["b"], apart.on_terms(mode="lend", milli=0, limit=WHOLE))
    assert [type(action) for action in carry_out(state, plan)] == [Launch]


def test_service_counts_the_share_that_was_measured() -> None:
    state = world()
    a = state.jobs["a"]
    state.now_s = 100.0
    state.advance(state.now_s, [ProgressReported("a", share=0.25)])
    state.now_s = 300.0
    assert a.service_at(300.0) == pytest.approx(100 + 200 * 0.25)
    assert a.run_at(300.0) == 300.0
    state.advance(state.now_s, [TasksExited("a", Exit.FINISHED, 100.0)])
    assert a.service_gpu_s == pytest.approx(150.0)
    assert state.knowledge.used_by("default") == pytest.approx(150.0)


def test_a_suspended_job_of_a_lane_keeps_only_the_memory_that_it_does_not_need_to_run() -> None:
    there = cluster([node(1, gpu_mem_gib=16)])
    halted = Allocation((Slice(0, 0b1, 0, 8 * 1024, ephemeral_mib=6 * 1024),), 0)
    there.take(halted, 0)
    check_books(there, [(0, halted)])
    assert there.nodes[0].memory_left(0) == 14 * 1024


def test_a_share_that_was_measured_elsewhere_counts_from_the_move() -> None:
    state = world()
    a = state.jobs["a"]
    state.now_s = 100.0
    state.advance(state.now_s, [ProgressReported("a", share=0.25)])
    state.now_s = 200.0
    state.advance(state.now_s, [TasksMoved("a", ONE, 100.0, 1.0, 200.0, 2, share=0.5)])
    assert a.service_at(300.0) == pytest.approx(100 + 100 * 0.25 + 100 * 0.5)
