"""A policy for tests that solves: the answer is an order of the jobs, and may be missing."""

from __future__ import annotations

import os
import time

import msgspec
from tests.support.world import World, WorldCourse

from skep.core.actions import Action
from skep.core.events import Event
from skep.core.job import JobState
from skep.core.memory import At, Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.record import Entry, decode, encode, record
from skep.core.refusal import Cause, Refusal
from skep.core.solving import ANSWERED, ASKED, SolverProblem, Unsolved, answer_words
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import Trigger, View
from skep.engines.sim.delayed import Delayed
from skep.policies.place.simple import Consolidate

SOLVING = f"{__file__}:Solving"
"""The name of the policy."""


RETRY_S = 60.0


class OrderProblem(msgspec.Struct, frozen=True):
    jobs: list[tuple[str, int]]
    """Ids and submission numbers."""
    fails_every: int
    sleep_s: float


class OrderAnswer(msgspec.Struct, frozen=True):
    order: list[str]


def solve(problem: OrderProblem) -> OrderAnswer:
    """The last submitted first; no solution for every so many jobs."""
    os.write(1, b"a line of a library\n")
    if problem.sleep_s:
        time.sleep(problem.sleep_s)
    if problem.fails_every > 0 and len(problem.jobs) % problem.fails_every == 0:
        raise Unsolved(f"no order for {len(problem.jobs)} jobs")
    if problem.fails_every == -1:
        raise ZeroDivisionError("a bug of the solver")
    return OrderAnswer([job_id for job_id, _ in sorted(problem.jobs, key=lambda each: -each[1])])


class Solving(Declares):
    """Asks when jobs come or go; jobs that no answer names yet wait."""

    needs = frozenset({"checkpoint"})

    def __init__(
        self, fails_every: float = 0.0, sleep_s: float = 0.0, quick: float = 0.0, retry_s: float = RETRY_S
    ) -> None:
        """`quick`: so many jobs take no time."""
        self.fails_every = int(fails_every)
        self.sleep_s = sleep_s
        self.quick = quick
        self.retry_s = retry_s
        self.place = Consolidate()

    def attach(self, view: View, memory: Memory) -> None:
        self.blank = view.blank()
        self.trial = self.blank.new_plan()

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        jobs = [(job.id, job.seq) for job in view.jobs.values() if not job.state.is_final]
        sleep_s = self.sleep_s if len(jobs) > self.quick else 0.0
        return SolverProblem("tests.support.solving:solve", OrderProblem(jobs, self.fails_every, sleep_s))

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        answered = ANSWERED.get(memory)
        order = [] if answered is None else msgspec.msgpack.decode(answered.answer, type=OrderAnswer).order
        present = {job.id for job in view.jobs.values() if not job.state.is_final}
        if present != set(order) and not trigger.solved and ASKED.get(memory) is None:
            plan.ask(view)
            return plan
        if present != set(order):
            plan.wake(view.now_s + self.retry_s)
        for job_id in order:
            job = view.jobs.get(job_id)
            if job is None or job.state is not JobState.PENDING or not job.is_ready:
                continue
            if self.place.find(self.blank.cluster, self.trial, job, job.spec.shapes[0], 0.0) is None:
                plan.reject(job, "the cluster is too small for it")
            elif (found := self.place.find(view.cluster, plan, job, job.spec.shapes[0], view.now_s)) is not None:
                plan.start(job, found)
        return plan

    def explain(self, view: View, memory: Memory, job: object) -> Refusal:
        reason = answer_words(memory, view.now_s) or "others come first"
        return Refusal("solving", Cause.ORDER, reason, "the next answer")


class Logged(Scheduler):
    """Keeps the log of its steps."""

    def step(self, at_s: float, events: list[Event], change: object = None) -> list[Action]:
        actions = super().step(at_s, events)
        logged = Entry(at_s, events, [record(plan) for plan in self.plans])
        self.log = [*getattr(self, "log", []), decode(encode(logged))]
        return actions


class Late(WorldCourse):
    """A course whose answers come after a while."""

    def __init__(self, world: World, delay_s: float) -> None:
        state = State(world.cluster.blank())
        engine = Delayed(world.engine(state.cluster), delay_s) if delay_s else world.engine(state.cluster)
        answers = {"answers": engine.ask} if delay_s else {}
        super().__init__(Logged(state, world.planner(), **answers), engine)
