"""The writer: what owners ask, what engines tell, and that nothing is lost in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.errors import Conflict, InputError, NotFound
from skep.core.events import NodeBack
from skep.core.record import decode
from skep.core.reports import Exited, LaunchFailed, Moved, Started
from skep.jobs.exits import SOME
from skep.jobs.request import Completion, Elastic, Request, TaskRole
from skep.policies.order.queues import PROMOTION, STANDING
from skep.service import commands
from skep.service.recover import recompute, recover


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def test_a_job_goes_from_pending_to_its_end(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4))
    assert world.state(job) == "launching"
    world.settle()
    assert world.state(job) == "running"
    world.end(job)
    assert world.state(job) == "succeeded"
    kinds = [told.kind for told in world.store.notices(0, job, 100)]
    assert kinds == ["submitted", "started", "succeeded"]
    (attempt,) = world.store.attempts(int(job))
    assert (attempt.launch, attempt.outcome, attempt.code) == (1, "succeeded", 0)


def test_stopping_what_waits_what_runs_and_what_is_over(world: LiveWorld) -> None:
    first, second, third = world.submit(request(gpus=8), request(gpus=8), request(gpus=8))
    world.settle()
    world.ask(commands.stop(second, "bob", ""))
    assert world.state(second) == "stopped"
    world.ask(commands.stop(first, "bob", "enough"))
    assert world.state(first) == "stopping"
    world.settle()
    assert world.state(first) == "stopped"
    assert world.state(third) == "running"
    with pytest.raises(Conflict, match="already finished"):
        world.ask(commands.stop(first, "bob", ""))
    with pytest.raises(NotFound):
        world.ask(commands.stop("999", "bob", ""))


def test_a_held_job_waits_until_it_is_released(world: LiveWorld) -> None:
    (job,) = world.submit(request(hold=True))
    assert world.state(job) == "pending"
    world.ask(commands.hold(job, False, "ann"))
    world.settle()
    assert world.state(job) == "running"
    with pytest.raises(Conflict, match="cannot be held"):
        world.ask(commands.hold(job, True, "ann"))


def test_priority_of_a_pending_job(world: LiveWorld) -> None:
    running, low, high = world.submit(*(request(gpus=8) for _ in range(3)))
    world.settle()
    world.ask(commands.reprioritise(high, 9, "ann"))
    world.ask(commands.reprioritise(low, 5, "ann"))
    world.end(running)
    assert (world.state(low), world.state(high)) == ("pending", "running")


def test_failures_are_tried_again_by_class(world: LiveWorld) -> None:
    (job,) = world.submit(request(retries=1))
    world.settle()
    world.end(job, 1)
    assert world.state(job) == "pending"
    assert "back-off" in world.store.job(int(job))[0].reason
    world.now_s += 100
    world.tell()
    world.settle()
    assert world.state(job) == "running"
    world.end(job, 1)
    assert world.state(job) == "failed"
    assert [attempt.outcome for attempt in world.store.attempts(int(job))] == ["retried", "failed"]


def test_a_job_that_is_killed_is_not_tried_for_ever(world: LiveWorld) -> None:
    """Whoever kills it: it may do that itself. A lost node does not count."""
    (job,) = world.submit(request())
    world.settle()
    for tries in range(1, 20):
        world.end(job, (137, 143, 130)[tries % 3])
        if world.state(job) == "failed":
            break
        assert "back-off" in world.store.job(int(job))[0].reason
        world.now_s += 100
        world.tell()
        world.settle()
    assert tries == SOME + 1
    (other,) = world.submit(request())
    world.settle()
    for _ in range(20):
        (node,) = world.writer.state.jobs[other].held.nodes()
        world.lose(node)
        world.tell(NodeBack(world.writer.state.cluster.nodes[node].name))
    assert world.state(other) == "running"


def test_a_fault_of_the_user_is_not_tried_again(world: LiveWorld) -> None:
    (job,) = world.submit(request(retries=5))
    world.settle()
    world.end(job, 1, "RuntimeError: CUDA out of memory")
    assert world.state(job) == "failed"
    assert "memory" in world.store.attempts(int(job))[0].phrase


def test_a_lost_node_brings_its_jobs_back(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4))
    world.settle()
    (node,) = world.writer.state.jobs[job].held.nodes()
    world.lose(node)
    assert world.state(job) == "running"
    assert world.writer.state.jobs[job].held.nodes() != [node]


def test_late_and_doubled_reports_change_nothing(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=8, retries=3))
    world.settle()
    world.end(job, 1)
    world.now_s += 100
    world.tell()
    world.settle()
    before = snapshot(world.writer.state)["jobs"]
    world.tell(Exited(job, 1, 0), Started(job, 1), Started(job, 2), LaunchFailed(job, 1, "late"))
    assert snapshot(world.writer.state)["jobs"] == before


def test_needs_are_met_or_end_those_who_wait(world: LiveWorld) -> None:
    (first,) = world.submit(request("first"))
    world.settle()
    (second,) = world.submit(request("second", needs=("first",)))
    (third,) = world.submit(request("third", needs=(second,)))
    world.end(first, 1, "SyntaxError")
    assert (world.state(second), world.state(third)) == ("stopped", "stopped")
    told = [(each.kind, each.text) for job in (second, third) for each in world.store.notices(0, job, 100)[1:]]
    assert told == [
        ("stopped", f"needs {first}, which ended as failed"),
        ("stopped", f"needs {second}, which ended as stopped"),
    ]
    with pytest.raises(Conflict, match="ended as failed"):
        world.submit(request(needs=("first",)))


def test_jobs_of_one_submission_may_need_those_before_them(world: LiveWorld) -> None:
    requests = [request("train"), request("score", needs=("train",))]
    world.submit(request("train"))  # of the same name, but not the latest
    first, second = world.submit(*requests)
    assert world.writer.state.jobs[second].spec.needs == (first,)
    with pytest.raises(NotFound, match="no job report"):
        world.submit(request("show", needs=("report",)), request("report"))


def test_changes_are_made_together_or_not_at_all(world: LiveWorld) -> None:
    running, pending = world.submit(request(gpus=8), request(gpus=8))
    world.settle()
    with pytest.raises(Conflict, match="priority"):
        world.ask(commands.change(running, "ann", 9, None, ("a",)))
    assert world.store.job(int(running))[0].tags == ()
    world.ask(commands.change(pending, "ann", 9, True, ("a",)))
    row = world.store.job(int(pending))[0]
    assert (row.priority, row.tags, row.reason) == (9, ("a",), "held: by ann")


def test_a_job_that_failed_says_why(world: LiveWorld) -> None:
    gang, single = world.submit(request(gpus=1), request(gpus=2, gang=False))
    world.settle()
    world.end(gang, 3, "SyntaxError: invalid syntax")
    world.end(f"{single}/task-1", 7)
    world.settle()
    assert world.store.job(int(gang))[0].reason.endswith(", exit code 3")
    reason = world.store.job(int(single))[0].reason
    assert reason.startswith("task task-1: ")
    assert reason.endswith(", exit code 7")
    assert reason in [told.text for told in world.store.notices(0, single, 100)]


def test_the_same_key_is_one_job(world: LiveWorld) -> None:
    one = world.submit(request(), key="k")
    assert world.submit(request(), key="k") == one
    with pytest.raises(Conflict):
        world.submit(request(gpus=2), key="k")
    world.crash()
    assert world.submit(request(), key="k") == one


def test_what_can_never_run_is_refused_whole(world: LiveWorld) -> None:
    with pytest.raises(InputError, match="can never run here: asks for 9 GPUs, the cluster has 8"):
        world.submit(request(), request(gpus=1), Request("big", {"task": TaskRole(count=9, gpus=1, command="true")}))
    assert not world.writer.state.jobs


def test_tasks_that_start_one_by_one(world: LiveWorld) -> None:
    (big,) = world.submit(request(gpus=4))
    role = TaskRole(count=2, gpus=4, command="true", completion=Completion(min_succeeded=1))
    (job,) = world.submit(Request("inc", {"w": role}, gang=False))
    world.settle()
    jobs = world.writer.state.jobs
    assert [str(jobs[f"{job}/w-{n}"].state) for n in (0, 1)] == ["running", "pending"]
    assert world.state(job) == "running"
    world.end(big)
    assert jobs[f"{job}/w-1"].state == "running"
    world.end(f"{job}/w-0")
    assert world.state(job) == "succeeded"
    assert jobs[f"{job}/w-1"].state == "stopped"


def test_time_limits(world: LiveWorld) -> None:
    (job,) = world.submit(request(time_limit_s=50.0))
    world.settle()
    assert world.writer.wake_s <= world.now_s + 51
    world.now_s += 60
    world.tell()
    world.settle()
    assert world.state(job) == "stopped"
    assert world.store.job(int(job))[0].reason == "its time limit of 50 s is over"


def test_a_job_that_succeeds_as_its_time_limit_passes_names_no_limit(world: LiveWorld) -> None:
    (job,) = world.submit(request(time_limit_s=50.0))
    world.settle()
    world.now_s += 60
    world.end(job)
    world.settle()
    assert world.state(job) == "succeeded"
    assert world.store.job(int(job))[0].reason == ""


def test_another_policy_and_another_cluster_while_jobs_run(world: LiveWorld) -> None:
    first, second = world.submit(request(gpus=4), request(gpus=4))
    world.settle()
    third = world.submit(request(gpus=4))[0]
    world.ask(commands.use_policy("tiresias-l", "root"))
    assert world.writer.planning.planner.name == "tiresias-l"
    world.ask(commands.apply_cluster("3x4", "three", "root"))
    world.settle()
    assert [world.state(job) for job in (first, second, third)] == ["running"] * 3
    with pytest.raises(Conflict, match="runs on node"):
        world.ask(commands.apply_cluster("2x4", "two", "root"))
    for imitation in ("srsf:compat=true,place=any", "gavel-las:compat=true", "optimus:compat=true"):
        with pytest.raises(InputError, match="imitates"):
            world.ask(commands.use_policy(imitation, "root"))
    of_vc = (
        "nodes: [{count: 3, gpus: 4, name: n}]\nvcs: {default: {cells: 3 nodes, policy: 'srsf:compat=true,place=any'}}"
    )
    with pytest.raises(InputError, match="imitates"):
        world.ask(commands.apply_cluster(of_vc, "vcs", "root"))


@pytest.mark.parametrize("vcs", ["", "vcs: {default: NUMBER nodes}\n"])
def test_what_a_policy_remembers_outlives_a_change_of_the_cluster(tmp_path: Path, vcs: str) -> None:
    """Who has sunk to the second queue, was promoted and stands where: all as before, also after a restart."""
    nodes = "nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}]\n"
    more = "nodes: [{name: new, gpus: 4}, {name: b, gpus: 4}, {name: a, gpus: 4}]\n"
    world = LiveWorld(tmp_path, nodes + vcs.replace("NUMBER", "2"), "tiresias-l:queues=100,promote=2")
    first, second, third = world.submit(*(request(gpus=8) for _ in range(3)))
    for _ in range(12):  # all of them take turns
        world.settle()
        world.now_s += 20
        world.tell()

    def remembered() -> dict[str, dict[str, object]]:
        memory = world.writer.state.memory
        return {slot.name: slot.all(memory) for slot in (STANDING, PROMOTION) if slot.all(memory)}

    before = remembered()
    assert before["standing"].keys() == {first, second, third}
    world.ask(commands.apply_cluster(more + vcs.replace("NUMBER", "3"), "more", "root"))
    after = remembered()
    assert after["promotion"] == before["promotion"]
    running = next(iter(world.writer.state.held_jobs.values())).id
    assert after["standing"][running] == before["standing"][running]
    world.crash()
    assert remembered() == after
    world.ask(commands.use_policy("fifo", "root"))
    assert not remembered()


def test_drained_nodes_keep_what_they_have_and_get_nothing_new(world: LiveWorld) -> None:
    (first,) = world.submit(request(gpus=4))
    world.settle()
    name = world.store.job(int(first))[0].nodes[0]
    world.ask(commands.drain(name, True, "root"))
    second, third = world.submit(request(gpus=4), request(gpus=4))
    world.settle()
    world.end(first)
    assert (world.state(second), world.state(third)) == ("running", "pending")
    world.ask(commands.drain(name, False, "root"))
    world.settle()
    assert world.state(third) == "running"


def test_a_restart_begins_where_the_last_write_ended(world: LiveWorld) -> None:
    ids = world.submit(*(request(gpus=4, hold=number == 3) for number in range(4)))
    world.settle()
    world.end(ids[0])
    world.submit(request(gpus=2))  # launched, but the engine has not said so
    for take_snapshot in (False, True):
        if take_snapshot:
            world.writer.save_snapshot()
        before = snapshot(world.writer.state)
        rows = [record.row for record in world.writer.book.records.values()]
        world.crash()
        assert snapshot(world.writer.state) == before
        assert [record.row for record in world.writer.book.records.values()] == rows
        folded, _ = recover(world.store, from_start=True)
        assert snapshot(folded) == before
    world.settle()
    for job in [name for name, each in world.writer.state.jobs.items() if each.state == "running"]:
        world.end(job)
    assert world.state(ids[1]) == "succeeded"


def test_the_log_decided_again_decides_the_same(world: LiveWorld) -> None:
    for number in range(12):
        world.submit(request(gpus=1 + number % 4))
        world.settle()
        if number == 5:
            world.ask(commands.use_policy("las", "root"))
        running = [name for name, each in world.writer.state.jobs.items() if each.state == "running"]
        if number % 3 == 2:
            world.end(running[0])
    entries = [decode(data) for data in world.store.entries()]
    assert len(entries) > 20
    assert recompute(entries) == []


def test_old_jobs_are_forgotten(world: LiveWorld) -> None:
    ids = world.submit(request(), request())
    world.settle()
    world.end(ids[0])
    world.writer.save_snapshot()
    assert world.writer.forget(world.now_s + 1) == [ids[0]]
    assert world.store.job(int(ids[0])) is None
    assert ids[0] not in world.writer.state.jobs
    before = snapshot(world.writer.state)
    world.writer.save_snapshot()
    world.crash()
    assert snapshot(world.writer.state) == before
    assert world.submit(request()) == ["3"]


def test_who_must_not_be_preempted_is_not(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, policy="srtf")
    fixed, other = world.submit(request(gpus=4, expect_s=9000.0, preemptible=False), request(gpus=4, expect_s=9000.0))
    world.settle()
    urgent = world.submit(*(request(gpus=4, expect_s=10.0, priority=500) for _ in range(2)))
    world.settle()
    assert (world.state(fixed), world.state(other)) == ("running", "pending")
    assert sorted(world.state(job) for job in urgent) == ["pending", "running"]


VCS = "nodes: [{name: a, gpus: 2, cpus: 4}, {name: b, gpus: 2, cpus: 4}]\nvcs: {red: 1 nodes, blue: 1 nodes}\n"


def test_jobs_without_gpus_run_in_a_virtual_cluster(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    role = TaskRole(cpu=2, command="true")
    ids = world.submit(*(Request(f"cpu{number}", {"w": role}, vc="red") for number in range(5)))
    world.settle()
    assert [world.state(job) for job in ids] == [*["running"] * 4, "pending"]  # two of them borrow
    assert all(world.writer.state.jobs[job].held.slices[0].cpu_milli == 2000 for job in ids[:4])
    world.crash()
    world.end(ids[0])
    assert world.state(ids[4]) == "running"


def test_guarantees_are_found_again_on_another_cluster(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    red, blue = world.submit(request(gpus=2, vc="red"), request(gpus=2, vc="blue"))
    world.settle()
    changed = VCS.replace("cpus: 4}]", "cpus: 4}, {name: c, gpus: 2, cpus: 4}]").replace("blue: 1", "blue: 2")
    with world.writer.lock:
        changes = commands.changes_of(world.writer, changed, "more")
    assert changes == ["node c is added, with 2 GPUs", "VC blue gets other cells"]
    world.ask(commands.apply_cluster(changed, "more", "root"))
    assert not world.writer.planning.planner.loans.borrowers
    shrunk = changed.replace("red: 1", "green: 1")
    with pytest.raises(Conflict, match="VC red has jobs"):
        world.ask(commands.apply_cluster(shrunk, "less", "root"))
    less = changed.replace("blue: 2", "blue: 1")
    world.ask(commands.apply_cluster(less, "less", "root"))
    assert [world.state(job) for job in (red, blue)] == ["running", "running"]
    world.crash()
    assert not world.writer.planning.planner.loans.borrowers


def test_what_is_held_by_its_owner_outlives_a_back_off(world: LiveWorld) -> None:
    (job,) = world.submit(request(retries=1))
    world.settle()
    world.end(job, 1)
    world.ask(commands.hold(job, True, "ann"))
    world.now_s += 100
    world.tell()
    world.settle()
    assert world.state(job) == "pending"


def test_an_exit_told_twice_is_told_once(world: LiveWorld) -> None:
    (job,) = world.submit(request())
    world.settle()
    world.tell(Exited(job, 1, 0), Exited(job, 1, 0))
    assert [told.kind for told in world.store.notices(0, job, 100)] == ["submitted", "started", "succeeded"]


def test_a_priority_that_is_raised_preempts(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, policy="fifo:walk=skip")
    first, second = world.submit(request(gpus=8), request(gpus=8))
    world.settle()
    world.ask(commands.reprioritise(second, 500, "ann"))
    world.settle()
    assert (world.state(first), world.state(second)) == ("pending", "running")


def test_a_cluster_that_lacks_what_jobs_hold_is_refused(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    role = TaskRole(cpu=4, command="true")
    world.submit(Request("cpu", {"w": role}, vc="red"))
    world.settle()
    with pytest.raises(Conflict, match="has with less"):
        world.ask(commands.apply_cluster(VCS.replace("cpus: 4", "cpus: 2"), "less", "root"))


def test_a_vc_whose_jobs_have_ended_may_go(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=VCS)
    (job,) = world.submit(request(gpus=1, vc="red"))
    world.settle()
    world.end(job)
    world.ask(commands.apply_cluster(VCS.replace("red: 1 nodes, ", ""), "less", "root"))
    world.crash()
    (other,) = world.submit(request(gpus=1, vc="blue"))
    world.settle()
    assert world.state(other) == "running"


def test_a_job_that_can_no_longer_run_is_told(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="3x4")
    (other,) = world.submit(request("other", gpus=12, hold=True))
    world.ask(commands.apply_cluster("2x4", "less", "root"))
    world.ask(commands.hold(other, False, "ann"))
    assert world.state(other) == "failed"
    assert world.store.notices(0, other, 100)[-1].text == "can never run: asks for 12 GPUs, the cluster has 8"


def test_usage_is_what_was_held_in_between(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4))
    world.settle()
    start_s = world.now_s
    world.now_s += 99
    world.end(job)
    assert world.store.usage("user", 0.0, world.now_s) == [("ann", 1, 400.0)]
    assert world.store.usage("vc", start_s + 90, start_s + 95) == [("default", 1, 20.0)]
    assert world.store.usage("vc", 0.0, start_s - 5) == []


def test_attempts_say_how_they_ended(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, policy="afs-l:restart=0")
    elastic = Request(
        "grows", {"w": TaskRole(count=2, gpus=1, command="true")}, elastic=Elastic("w", 1, 8), expect_s=9000.0
    )
    (first,) = world.submit(request(gpus=4, expect_s=1.0, preemptible=False))
    (job,) = world.submit(elastic)
    world.settle()
    world.end(first)
    moved = [action for action in world.puppet.launched if action[0] == job]
    assert len(moved) == 1  # a move is no launch
    launches = world.writer.state.jobs[job].launches
    world.tell(Moved(job, launches), Moved(job, launches))  # told again
    world.ask(commands.stop(job, "ann", "enough"))
    world.settle()
    assert [attempt.outcome for attempt in world.store.attempts(int(job))] == ["resized", "stopped"]
    assert world.store.notices(0, job, 100)[-1].text == "enough"


def test_an_end_that_nobody_heard_is_told_as_it_was(world: LiveWorld) -> None:
    """The job ran for 100 s, and ended while the server was down; the scheduler still counts from what it hears."""
    (job,) = world.submit(request(gpus=4))
    world.settle()
    start_s = world.now_s
    world.now_s += 5000
    world.crash()
    world.tell(Exited(job, 1, 0, seconds=100.0))
    found = world.store.job(int(job))
    assert found is not None
    assert (found[0].state, found[0].finish_s) == ("succeeded", start_s + 100)
    (attempt,) = world.store.attempts(int(job))
    assert (attempt.start_s, attempt.end_s) == (start_s, start_s + 100)
    assert world.store.usage("user", 0.0, world.now_s) == [("ann", 1, 400.0)]
    assert world.writer.state.jobs[job].finish_s == world.now_s
    assert world.store.notices(0, job, 100)[-1].at_s == world.now_s


def test_a_start_and_an_end_that_nobody_heard(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4))
    world.now_s += 5000
    world.crash()
    world.tell(Started(job, 1), Exited(job, 1, 0, seconds=100.0))
    (attempt,) = world.store.attempts(int(job))
    assert (attempt.start_s, attempt.end_s) == (world.now_s - 100, world.now_s)
    assert world.store.usage("user", 0.0, world.now_s) == [("ann", 1, 400.0)]


def test_a_preempted_job_that_left_unheard_still_waits(world: LiveWorld) -> None:
    (job,) = world.submit(request(gpus=4))
    world.settle()
    start_s = world.now_s
    world.now_s += 5000
    world.tell(Exited(job, 1, 143, was_stopped=True, seconds=100.0))
    assert world.store.attempts(int(job))[0].end_s == start_s + 100
    world.ask(commands.stop(job, "ann", ""))
    world.settle()
    found = world.store.job(int(job))
    assert found is not None
    assert found[0].finish_s == world.now_s
