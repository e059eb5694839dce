"""Policies that raise, give nonsense, change what is not theirs or never come back: the server goes on."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core import step as step_module
from skep.core.errors import InputError
from skep.core.events import PolicyFailed
from skep.core.memory import Of, Slot
from skep.core.record import decode
from skep.core.reports import Looked
from skep.policies.order.queues import STANDING
from skep.service import commands
from skep.service.planning import Bounded, TooSlow
from skep.service.recover import recover
from skep.service.turn import Command

POLICY = '''
import sys

from skep.policies.registry import Setting, build_planner

trouble = sys.__dict__.setdefault("trouble of " + __file__, {})  # however often this file is read


def strike(where, *found):
    if where in trouble:
        return trouble[where](*found)
    return found[0] if found else None


class Odd:
    """fifo, with whatever trouble the test makes."""

    def __init__(self):
        strike("init")

    def attach(self, view, memory):
        self.inner = build_planner("fifo:walk=skip", Setting(view.cluster))
        self.inner.attach(view, memory)
        strike("attach", view)

    def plan(self, view, memory, trigger):
        return strike("plan", self.inner.plan(view, memory, trigger), view, trigger)

    def why_never(self, view, job):
        return strike("why_never", self.inner.why_never(view, job), view, job)

    def explain(self, view, memory, job):
        return strike("explain", self.inner.explain(view, memory, job), view, job)
'''
VCS = "nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}]\nvcs: {red: {cells: 1 nodes, policy: 'POLICY'}, blue: 1 nodes}\n"


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd.py").write_text(POLICY)
    return f"{tmp_path}/odd.py:Odd"


@pytest.fixture
def world(tmp_path: Path, odd: str) -> Iterator[LiveWorld]:
    world = LiveWorld(tmp_path, policy="las")
    world.ask(commands.use_policy(odd, "root"))
    yield world
    # Whatever happened, the log alone leads to the same state.
    folded, ground = recover(world.store, from_start=True)
    assert snapshot(folded) == snapshot(world.writer.state)
    assert (ground.policy, folded.faults) == (world.writer.ground.policy, world.writer.state.faults)
    before = snapshot(world.writer.state)
    world.crash()
    assert snapshot(world.writer.state) == before


def trouble() -> dict[str, Any]:
    found: dict[str, Any] = sys.modules["skep_own_odd"].trouble
    return found


def test_a_policy_is_asked_once_for_equal_jobs_until_it_decides(world: LiveWorld) -> None:
    asked: list[str] = []

    def count(never: str, view: Any, job: Any) -> str:
        asked.append(job.spec.user)
        return never

    trouble()["why_never"] = count
    ann, bob = request(), msgspec.structs.replace(request(), user="bob")
    futures: list[Future[Any]] = [Future() for _ in range(20)]
    world.turn(
        [Command(commands.submit([bob if n % 2 else ann], "ann", ""), each) for n, each in enumerate(futures)], []
    )
    assert len({each.result(0)[0] for each in futures}) == 20
    assert asked == ["ann", "bob"]
    world.submit(ann)  # something has happened since: it may think otherwise
    assert asked == ["ann", "bob", "ann"]


def raises(error: BaseException) -> Any:
    def strike(*_: Any) -> Any:
        raise error

    return strike


def for_ever(*_: Any) -> Any:
    return for_ever()


def forget_jobs(plan: Any, view: Any, trigger: Any) -> Any:
    view.jobs.clear()
    view.cluster.nodes.clear()
    view.cluster.specs.clear()
    view.memory.jobs["x"] = {"y": 1}
    raise ValueError("and now?")


def start_twice(plan: Any, view: Any, trigger: Any) -> Any:
    plan.decisions += plan.decisions
    return plan


def start_nobody_knows_what(plan: Any, view: Any, trigger: Any) -> Any:
    plan.decisions[:] = [type(each)("no such job", None, each.after) for each in plan.decisions]
    return plan


def give_too_little(plan: Any, view: Any, trigger: Any) -> Any:
    less = [type(each.after)(each.after.slices[:0], 0) for each in plan.decisions]
    plan.decisions[:] = [type(each)(each.job_id, None, small) for each, small in zip(plan.decisions, less, strict=True)]
    return plan


def keep_what_cannot_be_written(plan: Any, view: Any, trigger: Any) -> Any:
    plan.remember(Slot("me", object, Of.ALL), "", object())
    return plan


def reject_who_runs(plan: Any, view: Any, trigger: Any) -> Any:
    plan.rejects += [(job, "no") for job in view.held_jobs.values()]
    return plan


def secretly_kill(plan: Any, view: Any, trigger: Any) -> Any:
    """No decision at all: it only changes what it should read."""
    for job in view.held_jobs.values():
        job.state, job.allocation, job.bound, job.held = "stopped", None, None, None
    return plan


BAD_PLANS = {
    "raises": raises(AttributeError("no such thing")),
    "exits": raises(SystemExit(3)),
    "interrupts": raises(KeyboardInterrupt()),
    "memory": raises(MemoryError()),
    "recursion": for_ever,
    "none": lambda *_: None,
    "words": lambda *_: "a plan",
    "mutates": forget_jobs,
    "twice": start_twice,
    "unknown": start_nobody_knows_what,
    "less": give_too_little,
    "memory of objects": keep_what_cannot_be_written,
    "rejects": reject_who_runs,
}


@pytest.mark.parametrize("kind", BAD_PLANS)
def test_a_plan_that_fails_is_taken_back_and_another_policy_decides(world: LiveWorld, kind: str) -> None:
    (first,) = world.submit(request(gpus=2))
    world.settle()
    trouble()["plan"] = BAD_PLANS[kind]
    (second,) = world.submit(request(gpus=4))
    trouble().clear()
    world.settle()
    assert [world.state(job) for job in (first, second)] == ["running", "running"]
    assert world.writer.ground.policy == "las"
    assert world.writer.policy_failures == 1
    told = [told.text for told in world.store.notices(0, None, 100) if told.kind == "policy-failed"]
    assert len(told) == 1
    assert told[0].startswith("policy odd.py:Odd failed (")
    assert told[0].endswith("; the previous policy las takes over")
    (entry,) = [decode(data) for data in world.store.entries() if b"PolicyFailed" in data]
    assert isinstance(entry.events[0], PolicyFailed)
    assert entry.plans


def test_the_failure_names_the_line_of_the_policy(world: LiveWorld) -> None:
    line = POLICY.splitlines().index("        return trouble[where](*found)") + 1
    trouble()["plan"] = raises(AttributeError("no such thing"))
    world.submit(request())
    assert world.writer.state.faults[""].error == f"AttributeError: no such thing, line {line}"


def test_what_a_planner_does_to_its_copy_does_not_reach_the_state(world: LiveWorld) -> None:
    (first,) = world.submit(request(gpus=2))
    world.settle()
    trouble()["plan"] = secretly_kill
    world.submit(request(gpus=2))
    world.settle()
    assert world.state(first) == "running"


@pytest.mark.parametrize("where", ["why_never", "explain"])
@pytest.mark.parametrize("strike", [raises(ValueError("oh")), raises(SystemExit()), for_ever, lambda *_: object()])
def test_it_may_fail_when_it_is_asked_aside(world: LiveWorld, where: str, strike: Any) -> None:
    world.submit(request(gpus=8))
    world.settle()
    trouble()[where] = strike
    (job,) = world.submit(request(gpus=4))
    if where == "explain":
        assert world.writer.planning.explain({job: None})[job].code == "policy-failed"
        world.tell()
    assert world.state(job) == "pending"
    assert world.writer.ground.policy == "las"
    assert world.writer.planning.explain({job: None})[job].code != "policy-failed"


@pytest.mark.parametrize("where", ["init", "attach", "plan"])
@pytest.mark.parametrize("error", [ValueError("oh"), SystemExit(1), KeyboardInterrupt()])
def test_a_policy_that_fails_at_once_is_refused(tmp_path: Path, odd: str, where: str, error: BaseException) -> None:
    world = LiveWorld(tmp_path)
    sys.__dict__[f"trouble of {tmp_path}/odd.py"] = {where: raises(error)}
    with pytest.raises(InputError, match=type(error).__name__):
        world.ask(commands.use_policy(odd, "root"))
    assert world.writer.ground.policy == "fifo"
    assert not world.writer.state.faults
    (job,) = world.submit(request())
    world.settle()
    assert world.state(job) == "running"


def test_a_file_that_ends_the_program_when_it_is_read(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (tmp_path / "quits.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(InputError, match="SystemExit"):
        world.ask(commands.use_policy(f"{tmp_path}/quits.py:Mine", "root"))


def test_when_the_one_before_fails_too_fifo_and_then_nobody_decides(world: LiveWorld, odd: str) -> None:
    other = odd.replace("odd.py", "other.py")
    Path(other.removesuffix(":Odd")).write_text(POLICY)
    world.ask(commands.use_policy(other, "root"))
    (running,) = world.submit(request(gpus=4))
    world.settle()
    trouble()["attach"] = raises(ValueError("also"))
    sys.modules["skep_own_other"].trouble["plan"] = raises(ValueError("first"))
    (job,) = world.submit(request(gpus=8))
    assert world.writer.ground.policy == "fifo"
    assert world.writer.policy_failures == 2
    world.writer.planning.scheduler.planner.order.key = raises(ValueError("even fifo"))
    (last,) = world.submit(request(gpus=8))
    assert world.writer.ground.policy == "none"
    assert [world.state(each) for each in (running, job, last)] == ["running", "pending", "pending"]
    world.crash()
    world.end(running)
    assert world.state(job) == "pending"
    world.ask(commands.use_policy("fifo", "root"))
    world.settle()
    assert world.state(job) == "running"
    assert not world.writer.state.faults


def test_the_failed_policy_is_tried_again_when_it_is_chosen_again(world: LiveWorld, odd: str) -> None:
    trouble()["plan"] = raises(ValueError("oh"))
    world.submit(request())
    trouble().clear()
    assert world.writer.state.faults
    world.ask(commands.use_policy(odd, "root"))
    assert not world.writer.state.faults
    world.submit(request())
    assert world.writer.ground.policy == odd


def test_in_a_virtual_cluster_only_that_one_falls_back(tmp_path: Path, odd: str) -> None:
    world = LiveWorld(tmp_path, cluster=VCS.replace("POLICY", odd), policy="tiresias-l")
    red, blue = world.submit(request(gpus=2, vc="red"), request(gpus=2, vc="blue"))
    world.settle()
    kept = STANDING.get(world.writer.state.memory, blue)
    assert kept is not None
    trouble()["plan"] = raises(ValueError("red only"))
    more = world.submit(request(gpus=1, vc="red"), request(gpus=1, vc="blue"))
    world.settle()
    assert [world.state(job) for job in (red, blue, *more)] == ["running"] * 4
    assert world.writer.ground.policy == "tiresias-l"
    fault = world.writer.state.faults["red"]
    assert (fault.vc, fault.instead) == ("red", "tiresias-l")
    assert STANDING.get(world.writer.state.memory, blue) == kept
    told = world.store.notices(0, None, 100)
    assert any(" of VC red failed (ValueError: red only" in each.text for each in told)
    folded, _ = recover(world.store, from_start=True)
    assert snapshot(folded) == snapshot(world.writer.state)
    world.writer.save_snapshot()
    world.crash()
    assert world.writer.ground.own_policy("red") == "tiresias-l"
    assert snapshot(folded) == snapshot(world.writer.state)


def test_a_policy_that_asks_to_be_woken_without_end(world: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "WAKES_MAX", 20)

    def restless(plan: Any, view: Any, trigger: Any) -> Any:
        plan.wake(view.now_s)
        return plan

    trouble()["plan"] = restless
    world.submit(request())
    for _ in range(30):
        world.writer.turn([], [], world.now_s)
        world.writer.turn([], [Looked()], world.now_s)
    assert world.writer.ground.policy == "las"
    assert "woken" in world.writer.state.faults[""].error


def test_one_that_never_comes_back_is_left_behind() -> None:
    bounded = Bounded(limit_s=0.2)
    ended = []

    def never() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            ended.append(True)

    with pytest.raises(TooSlow, match="no answer within"):
        bounded(never)
    assert bounded(lambda: 7) == 7
    with pytest.raises(KeyError):
        bounded(lambda: {}["x"])
    while not ended:
        time.sleep(0.01)
    bounded.close()


def test_a_policy_that_fails_at_random_loses_nothing(tmp_path: Path, odd: str) -> None:
    """Each time it is chosen again. Every job that was taken runs once and ends."""
    world = LiveWorld(tmp_path, cluster="4x4")
    world.ask(commands.use_policy(odd, "root"))
    chance = random.Random(5)
    failures = list(BAD_PLANS.values())

    def at_random(plan: Any, view: Any, trigger: Any) -> Any:
        return chance.choice(failures)(plan, view, trigger) if chance.random() < 0.2 else plan

    ids: list[str] = []
    trouble()["plan"] = at_random
    for _ in range(40):
        ids += world.submit(*(request(gpus=chance.choice((1, 2, 4))) for _ in range(2)))
        world.settle()
        running = [job.id for job in world.writer.state.held_jobs.values()]
        for job in chance.sample(running, min(len(running), 2)):
            world.end(job)
        if world.writer.state.faults:
            found = trouble().pop("plan")
            world.ask(commands.use_policy(odd, "root"))
            trouble()["plan"] = found
    trouble().clear()
    while world.writer.state.held_jobs:
        for job in list(world.writer.state.held_jobs.values()):
            world.end(job.id)
    assert world.writer.policy_failures > 10
    assert {world.state(job) for job in ids} == {"succeeded"}
    assert all(len(world.store.attempts(int(job))) == 1 for job in ids)
    folded, _ = recover(world.store, from_start=True)
    assert snapshot(folded) == snapshot(world.writer.state)


def test_a_policy_that_reads_what_it_did_not_declare_is_replaced_and_told_what_to_declare(world: LiveWorld) -> None:
    def read(plan: Any, view: Any, trigger: Any) -> Any:
        return [job.spec.expect_s for job in view.jobs.values()] and plan

    trouble()["plan"] = read
    (job,) = world.submit(request())
    trouble().clear()
    world.settle()
    assert world.state(job) == "running"
    assert world.writer.ground.policy == "las"
    (told,) = [told.text for told in world.store.notices(0, None, 100) if told.kind == "policy-failed"]
    assert 'declare it with `needs = {"oracle"}` in its class' in told
    assert told.endswith("; the previous policy las takes over")


def test_a_policy_sees_the_estimates_of_owners_if_it_declares_them(tmp_path: Path) -> None:
    text = POLICY.replace("    def __init__(self):", '    needs = {"oracle"}\n\n    def __init__(self):')
    (tmp_path / "odd.py").write_text(text)
    world = LiveWorld(tmp_path, policy="las")
    world.ask(commands.use_policy(f"{tmp_path}/odd.py:Odd", "root"))
    seen: list[float | None] = []

    def read(plan: Any, view: Any, trigger: Any) -> Any:
        seen.extend(job.spec.expect_s for job in view.open_jobs.values())
        return plan

    def ask(never: str, view: Any, job: Any) -> str:
        seen.append(job.spec.expect_s)
        return never

    trouble().update(plan=read, why_never=ask)
    world.submit(msgspec.structs.replace(request(), expect_s=70.0))
    trouble().clear()
    assert world.writer.ground.policy == f"{tmp_path}/odd.py:Odd"
    assert set(seen) == {70.0}
    assert len(seen) >= 2
