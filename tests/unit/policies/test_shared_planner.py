"""Virtual clusters beneath policies: small cases worked out by hand, mostly on two nodes of four gpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support import job, role, take_trigger, trace
from tests.support.invariants import check_books
from tests.support.shared_invariants import check_shared
from tests.support.snapshot import snapshot
from tests.support.world import World, WorldCourse

from skep.cli.main import skep
from skep.clusters import read_layout
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InputError
from skep.core.events import GroupFormed, JobSubmitted
from skep.core.group import GroupSpec
from skep.core.job import JobState
from skep.core.memory import OWNED, Memory
from skep.core.plan import Plan
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import JobView, Trigger, View
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import JobRow, Run
from skep.policies.idle import Idle
from skep.policies.registry import Setting
from skep.policies.shared.build import build_whole
from skep.policies.shared.planner import VcPlanner
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE
from skep.traces.trace import TraceJob

TWO = "nodes: [{count: 2, gpus: 4, name: n}]\nvcs: {a: 1 nodes, b: 1 nodes}\n"
THREE = "nodes: [{count: 3, gpus: 4, name: n}]\nvcs: {a: 1 nodes, b: 1 nodes, c: 1 nodes}\n"


def simulated(
    folder: Path, cluster: str, *jobs: TraceJob, policy: str = "fifo", sharing: str = CELLS, restart_s: float = 0.0
) -> Run:
    path = folder / "lab.yaml"
    path.write_text(cluster)
    layout = read_layout(str(path))
    where = hardware_cluster(layout, sharing)
    return Experiment(trace(*jobs), where, Options(restart_s=restart_s), None, layout, sharing).run(policy)


def times(run: Run) -> dict[str, tuple[float | None, float | None, int]]:
    """Start, finish, preemptions."""
    return {row.job_id: (row.start_s, row.finish_s, row.preemptions) for row in run.rows}


def row(run: Run, name: str) -> JobRow:
    return next(row for row in run.rows if row.job_id == name)


# Lending --------------------------------------------------------------------------------------------------------


def test_a_job_its_vc_has_no_room_for_runs_at_once_on_idle_cells_of_another(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", id="own"), job(4, vc="a", id="lent"))
    assert times(simulated(tmp_path, TWO, *jobs)) == {"own": (0, 100, 0), "lent": (0, 100, 0)}


def test_with_borrow_never_it_waits_for_its_own(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", id="own"), job(4, vc="a", id="next"))
    run = simulated(tmp_path, TWO, *jobs, policy="fifo:borrow=never")
    assert times(run) == {"own": (0, 100, 0), "next": (100, 200, 0)}


def test_the_owner_gets_its_cells_at_once_and_the_borrower_comes_back_without_loss(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", id="own"), job(4, vc="a", id="lent"), job(4, vc="b", at=50, id="owner"))
    run = simulated(tmp_path, TWO, *jobs, restart_s=10)
    # 50 s done, then 10 s to restart when the VC's own node is free, and the other 50 s.
    assert times(run) == {"own": (0, 100, 0), "lent": (0, 160, 1), "owner": (50, 150, 0)}


def test_a_borrower_becomes_an_owner_where_it_stands_and_is_not_pushed_out_any_more(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", work=30, id="own"), job(4, vc="a", id="lent"), job(4, vc="b", at=50, id="owner"))
    run = simulated(tmp_path, TWO, *jobs, restart_s=10)
    assert times(run) == {"own": (0, 30, 0), "lent": (0, 100, 0), "owner": (50, 150, 0)}


def test_opportunistic_work_never_becomes_an_owner(tmp_path: Path) -> None:
    jobs = (
        job(4, vc="a", work=200, priority=-1, id="cheap"),
        job(4, vc="b", at=10, id="b"),
        job(4, vc="a", at=20, id="a"),
    )
    # Its VC has room from 0 to 20, and yet it has to go; it comes back when b's node is idle.
    assert times(simulated(tmp_path, TWO, *jobs)) == {"b": (10, 110, 0), "a": (20, 120, 0), "cheap": (0, 290, 1)}


def test_who_has_borrowed_least_goes_first(tmp_path: Path) -> None:
    jobs = (
        *(job(4, vc=vc, work=1000, id=vc) for vc in "ab"),
        job(4, vc="c", work=50, id="c"),
        job(2, vc="a", at=10, id="a1"),
        job(2, vc="a", at=10, id="a2"),
        job(2, vc="b", at=11, id="b1"),
    )
    seen = times(simulated(tmp_path, THREE, *jobs))
    assert (seen["a1"][0], seen["b1"][0], seen["a2"][0]) == (50, 50, 150)


def test_a_chain_that_no_vc_owns_is_lent_too(tmp_path: Path) -> None:
    text = "nodes: [{gpus: 4, gpu_type: v, name: n}, {gpus: 2, gpu_type: old, name: o}]\nvcs: {a: 1 nodes of v}\n"
    run = simulated(tmp_path, text, job(4, vc="a", id="own"), job(2, vc="a", id="lent"))
    assert times(run) == {"own": (0, 100, 0), "lent": (0, 100, 0)}


def test_two_borrowers_share_a_gpu_and_both_leave_when_it_is_wanted(tmp_path: Path) -> None:
    jobs = [job(1, gpu_milli=500, vc="a", at=1, priority=-1, id=name) for name in ("x", "y")]
    run = simulated(tmp_path, TWO, job(4, vc="a", id="a"), *jobs, job(4, vc="b", at=20, id="b"))
    assert times(run) == {"a": (0, 100, 0), "b": (20, 120, 0), "x": (1, 181, 1), "y": (1, 181, 1)}


# Policies and priorities ----------------------------------------------------------------------------------------


def test_each_vc_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    text = TWO.replace("b: 1 nodes", "b: {cells: {node: 1}, policy: 'sjf:borrow=never'}")
    jobs = [
        job(4, vc=vc, at=at, work=work, id=f"{vc}-{name}")
        for vc in "ab"
        for name, at, work in (("first", 0, 100), ("long", 1, 100), ("short", 2, 10))
    ]
    seen = times(simulated(tmp_path, text, *jobs, policy="fifo:borrow=never"))
    assert [seen[name][0] for name in ("a-long", "a-short", "b-short", "b-long")] == [100, 200, 100, 110]


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS, PRIVATE])
def test_a_higher_priority_pushes_out_lower_ones_of_its_own_vc_beneath_fifo(tmp_path: Path, sharing: str) -> None:
    jobs = (job(4, vc="a", id="low"), job(4, vc="b", id="other"), job(4, vc="a", at=30, priority=5, id="high"))
    run = simulated(tmp_path, TWO, *jobs, policy="fifo:borrow=never", sharing=sharing)
    assert times(run) == {"low": (0, 200, 1), "other": (0, 100, 0), "high": (30, 130, 0)}


@pytest.mark.parametrize("sharing", [NUMBERS, PRIVATE])
def test_where_nothing_is_lent_opportunistic_work_is_the_last_of_its_vc(tmp_path: Path, sharing: str) -> None:
    jobs = (job(4, vc="a", priority=-1, id="cheap"), job(4, vc="a", at=10, id="a"))
    run = simulated(tmp_path, TWO, *jobs, sharing=sharing)
    assert times(run) == {"cheap": (0, 200, 1), "a": (10, 110, 0)}


# What is promised -----------------------------------------------------------------------------------------------

BROKEN = (
    job(3, vc="a", id="p"),
    job(3, vc="b", at=1, work=1000, id="q"),
    job(1, vc="b", at=2, work=1000, id="r"),
    job(4, vc="a", at=100, id="whole"),
)
"""b's r fits best beside a's p; when that has ended, a has four gpus left and no whole node until q ends."""


@pytest.mark.parametrize(("sharing", "start_s"), [(CELLS, 100), (PRIVATE, 100), (NUMBERS, 1001)])
def test_a_number_of_gpus_is_not_a_node(tmp_path: Path, sharing: str, start_s: float) -> None:
    run = simulated(tmp_path, TWO, *BROKEN, policy="fifo:walk=skip,borrow=never", sharing=sharing)
    assert row(run, "whole").start_s == start_s


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS, PRIVATE])
def test_a_job_that_can_never_fit_its_vc_is_said_to_be_unrunnable(tmp_path: Path, sharing: str) -> None:
    run = simulated(tmp_path, TWO, job(5, vc="a", id="large"), job(4, vc="b", id="b"), sharing=sharing)
    assert row(run, "large").state == JobState.UNRUNNABLE
    assert run.unrunnable == {"large": "asks for 5 GPUs, VC a has 4"}
    assert row(run, "b").finish_s == 100


def test_one_that_fits_in_number_only_is_told_about_its_vc_too(tmp_path: Path) -> None:
    text = "nodes: [{count: 2, gpus: 4, switch: 2, name: n}]\nvcs: {a: 2 switches}\n"
    run = simulated(tmp_path, text, job(3, vc="a", id="j"), policy="fifo:place=consolidate")
    assert row(run, "j").finish_s == 100  # a switch and half of another: larger than what stands for a node here
    run = simulated(tmp_path, text, job(roles=(role(1, 3),), vc="a", id="task"))
    assert run.unrunnable["task"] == "VC a: asks for 3 GPUs in one task, no node has more than 2"


def test_a_vc_without_cells_lives_on_what_is_lent_only_with_opportunistic_work(tmp_path: Path) -> None:
    text = TWO.replace("b: 1 nodes", "b: 1 nodes, guests: ")
    run = simulated(tmp_path, text, job(1, vc="guests", id="g"), job(1, vc="guests", priority=-1, id="cheap"))
    assert run.unrunnable == {"g": "asks for 1 GPU, VC guests has 0"}
    assert row(run, "cheap").finish_s == 100


def test_waiting_is_booked_by_vc(tmp_path: Path) -> None:
    """Two VCs under the same policy do not mix their causes: a waits for a whole node, b for gpus."""
    jobs = (
        job(3, vc="a", id="a1"),
        job(2, vc="a", at=1, id="a2"),
        job(4, vc="b", id="b1"),
        job(2, vc="b", at=1, id="b2"),
    )
    run = simulated(tmp_path, TWO, *jobs, policy="fifo:borrow=never")
    assert [row(run, name).queue_s for name in ("a2", "b2")] == [99, 99]
    assert [row(run, name).queue_fragmentation_s for name in ("a2", "b2")] == [0, 0]


def test_owners_and_borrowers_are_known_from_the_state_alone(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(TWO)
    layout = read_layout(str(tmp_path / "lab.yaml"))
    jobs = trace(job(4, vc="a", id="own"), job(4, vc="a", id="lent"))
    world = World(jobs, hardware_cluster(layout), "fifo")
    first = Experiment(jobs, world.cluster, Options(), None, layout).planner("fifo")
    course = begin(world, first)
    course.advance()
    again = Experiment(jobs, world.cluster, Options(), None, layout).planner("fifo")
    assert isinstance(again, VcPlanner)
    again.attach(course.state, course.state.memory)
    check_shared(course.state, again)
    assert OWNED.get(course.state.memory, "own") is not None
    assert [borrower.id for borrower in again.loans.borrowers.values()] == ["lent"]


def begin(world: World, planner: Any) -> WorldCourse:
    state = State(world.cluster.blank())
    return WorldCourse(Scheduler(state, planner), world.engine(state.cluster))


# The command line -----------------------------------------------------------------------------------------------


def command(folder: Path, *more: str, cluster: str = TWO, vcs: tuple[str, str] = ("a", "b")) -> Any:
    (folder / "lab.yaml").write_text(cluster)
    lines = [f"x,0,100,4,{vcs[0]}", f"y,0,100,4,{vcs[0]}", f"z,300,100,1,{vcs[1]}"]
    (folder / "jobs.csv").write_text("\n".join(["job_id,submit_s,duration_s,gpus,vc", *lines, ""]))
    args = ["simulate", str(folder / "jobs.csv"), "--cluster", str(folder / "lab.yaml"), "--policy", "fifo", *more]
    return CliRunner().invoke(skep, args)


def failed(folder: Path, *more: str, **given: Any) -> str:
    result = command(folder, *more, **given)
    assert isinstance(result.exception, InputError)
    return str(result.exception)


def test_simulate_on_a_shared_cluster(tmp_path: Path) -> None:
    waits = {}
    for flag in ("--private", "--by-number", "--json"):
        result = command(tmp_path, "--json", flag)
        assert result.exit_code == 0, result.output
        waits[flag] = json.loads(result.output)[0]["queue_avg_s"]
    # Only with cells y borrows; else it waits 100 s for x.
    assert waits == {"--private": 33.333333, "--by-number": 33.333333, "--json": 0}


def test_an_unknown_vc_is_named(tmp_path: Path) -> None:
    said = failed(tmp_path, vcs=("a", "bb"))
    assert "the cluster has no virtual cluster 'bb', which the trace names" in said


def test_vc_map_renames(tmp_path: Path) -> None:
    assert command(tmp_path, "--vc-map", "team7=b", vcs=("a", "team7")).exit_code == 0
    assert "--vc-map: the trace has no VC 'team8'" in failed(tmp_path, "--vc-map", "team8=b")
    assert "--vc-map: 'b' is not old=new" in failed(tmp_path, "--vc-map", "b")


def test_a_vc_with_an_unknown_policy_is_named_before_anything_runs(tmp_path: Path) -> None:
    """A server that is told of such a cluster must refuse it: when its planners are made it is too late."""
    path = tmp_path / "lab.yaml"
    path.write_text(TWO.replace("b: 1 nodes", "b: {cells: 1 node, policy: fifoo}"))
    layout = read_layout(str(path))
    with pytest.raises(InputError, match="VC b: policy 'fifoo' is not known"):
        build_whole("fifo", Setting(hardware_cluster(layout, CELLS)), layout)


@pytest.mark.parametrize("flag", ["--private", "--by-number"])
def test_ways_of_sharing_need_virtual_clusters(tmp_path: Path, flag: str) -> None:
    said = failed(tmp_path, flag, cluster="nodes: [{count: 2, gpus: 4, name: n}]\n")
    assert "has no virtual clusters" in said


def test_ways_of_sharing_exclude_each_other(tmp_path: Path) -> None:
    assert "--private and --by-number exclude each other" in failed(tmp_path, "--private", "--by-number")


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS])
def test_a_full_vc_is_waiting_for_quota_whatever_else_is_free(tmp_path: Path, sharing: str) -> None:
    jobs = (job(4, vc="a", id="own"), job(4, vc="a", id="next"))
    run = simulated(tmp_path, TWO, *jobs, policy="fifo:borrow=never", sharing=sharing)
    assert row(run, "next").queue_quota_s == 100


# Pinned cells ---------------------------------------------------------------------------------------------------

PINNED = "nodes: [{count: 3, gpus: 4, name: n}]\nvcs: {a: {cells: 1 node, pinned: [n2]}, b: 1 node}\n"


def test_who_asks_for_a_pinned_cell_runs_there_and_waits_for_it_alone(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", id="x", pinned="n2"), job(4, vc="a", id="y", pinned="n2"))
    run = simulated(tmp_path, PINNED, *jobs)
    # Two idle nodes would do for y, its VC's own among them.
    assert times(run) == {"x": (0, 100, 0), "y": (100, 200, 0)}


def test_others_never_get_a_pinned_cell_not_even_lent(tmp_path: Path) -> None:
    jobs = [job(4, vc="a", id=name) for name in "xyz"]
    cheap = job(4, vc="b", at=1, priority=-1, id="cheap")
    run = simulated(tmp_path, PINNED, *jobs, cheap)
    assert times(run) == {"x": (0, 100, 0), "y": (0, 100, 0), "z": (100, 200, 0), "cheap": (100, 200, 0)}


def test_what_is_left_of_a_shared_gpu_in_a_pinned_cell_is_not_lent_either(tmp_path: Path) -> None:
    text = "nodes: [{count: 2, gpus: 1, name: n}]\nvcs: {a: {cells: 1 node, pinned: [n1]}}\n"
    half = {"gpu_milli": 500, "vc": "a"}
    jobs = (job(1, id="in", pinned="n1", **half), job(1, vc="a", id="own"), job(1, id="cheap", priority=-1, **half))
    assert times(simulated(tmp_path, text, *jobs))["cheap"] == (100, 200, 0)


def test_priorities_count_within_a_pinned_cell(tmp_path: Path) -> None:
    jobs = (job(4, vc="a", id="x", pinned="n2"), job(4, vc="a", at=10, id="y", pinned="n2", priority=5))
    assert times(simulated(tmp_path, PINNED, *jobs)) == {"x": (0, 200, 1), "y": (10, 110, 0)}


def test_a_pinned_cell_smaller_than_a_node_leaves_the_rest_of_it_to_others(tmp_path: Path) -> None:
    text = "nodes: [{gpus: 4, name: n, socket: 2}]\nvcs: {a: {cells: 1 socket, pinned: [n/1]}}\n"
    jobs = (job(2, vc="a", id="x"), job(2, vc="a", id="y", pinned="n/1"), job(2, vc="a", id="z"))
    assert times(simulated(tmp_path, text, *jobs)) == {"x": (0, 100, 0), "y": (0, 100, 0), "z": (100, 200, 0)}


# Planners that decide twice about one job -----------------------------------------------------------------------


class Twice(Idle):
    """Starts the first job; when another comes, it does all of this to the first in one plan."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for new in trigger.submitted:
            if new.id == "first":
                plan.start(new, Allocation((Slice(0, 0b11),), 2))
            else:
                self.act(plan, view.jobs["first"])
        return plan

    def act(self, plan: Plan, first: JobView) -> None:
        for step in self.steps:
            if step == "move":
                plan.move(first, Allocation((Slice(0, 0b1100),), 2))
            else:
                (plan.suspend if step == "suspend" else plan.resume)(first)


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS, PRIVATE])
@pytest.mark.parametrize(
    "steps", [("suspend", "resume"), ("suspend", "resume", "suspend"), ("move", "suspend", "resume")], ids="-".join
)
def test_a_vc_may_decide_twice_about_one_job_in_one_plan(tmp_path: Path, sharing: str, steps: tuple[str, ...]) -> None:
    (tmp_path / "lab.yaml").write_text(TWO)
    layout = read_layout(str(tmp_path / "lab.yaml"))
    jobs = trace(job(2, vc="b", id="first"), job(1, vc="b", id="second", at=10))
    planner = VcPlanner(layout, lambda vc, policy, cluster: Twice(*steps), sharing)
    course = begin(World(jobs, hardware_cluster(layout, sharing), "fifo"), planner)
    while course.state.now_s < 10:
        course.advance()
    first = course.state.jobs["first"]
    has_moved, is_suspended = "move" in steps, steps[-1] == "suspend"
    assert first.allocation is not None
    assert [piece.gpus for piece in first.allocation.slices] == [0b1100 if has_moved else 0b11], "in terms of its VC"
    assert first.state is (JobState.SUSPENDED if is_suspended else JobState.RUNNING)
    check_shared(course.state, planner)
    check_books(course.state.cluster, [(first.seq, first.bound)] if first.bound is not None else [])


@pytest.mark.parametrize("sharing", [CELLS, NUMBERS, PRIVATE])
@pytest.mark.parametrize(
    "steps", [("suspend", "resume"), ("suspend", "resume", "suspend"), ("move", "suspend", "resume")], ids="-".join
)
def test_a_plan_that_decides_twice_about_one_job_is_taken_back_step_by_step(
    tmp_path: Path, sharing: str, steps: tuple[str, ...]
) -> None:
    (tmp_path / "lab.yaml").write_text(TWO)
    layout = read_layout(str(tmp_path / "lab.yaml"))
    planner = VcPlanner(layout, lambda vc, policy, cluster: Twice(*steps), sharing)
    course = begin(World(trace(job(2, vc="b", id="first")), hardware_cluster(layout, sharing), "fifo"), planner)
    course.advance()
    state = course.state
    state.advance(state.now_s, [JobSubmitted(job(1, vc="b", id="second").spec)])
    trigger, before = take_trigger(state), snapshot(state)
    plan = planner.plan(state, state.memory, trigger)
    assert len(plan.decisions) == len(steps)
    first = state.jobs["first"]
    while plan.decisions:
        wanted = plan.decisions[-1].after
        assert wanted is not None
        check_books(state.cluster, [(first.seq, wanted)])
        count = len(plan.decisions)
        while len(plan.decisions) == count:
            plan.rollback(plan.mark() - 1)
    plan.rollback(0)
    assert snapshot(state) == before
    check_shared(state, planner)


class EndsGroups(Idle):
    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        plan.end_group("sweep", "the best trial is found")
        return plan


def test_a_group_that_the_planner_of_a_vc_ends_is_taken_back_too(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(TWO)
    layout = read_layout(str(tmp_path / "lab.yaml"))
    state = State(hardware_cluster(layout))
    planner = VcPlanner(layout, lambda vc, policy, cluster: EndsGroups())
    planner.attach(state, state.memory)
    state.advance(state.now_s, [GroupFormed(GroupSpec("sweep"))])
    state.advance(state.now_s, [JobSubmitted(job(1, vc="b", id="first").spec)])
    plan = planner.plan(state, state.memory, take_trigger(state))
    assert [group_id for group_id, _, _ in plan.ends] == ["sweep"]
    plan.rollback(0)
    assert not plan.ends
