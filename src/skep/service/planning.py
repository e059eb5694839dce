"""Runs planners on a copy of the state, so that they cannot damage the state itself.

A policy may be a user's file. If it raises, returns an invalid plan, modifies its input or does not return, only the
copy is affected. Its decisions are transferred as bytes, checked (`core/checked.py`), and only then logged. The copy of
a planner that failed is discarded, and the next one begins on a new copy.
"""

from __future__ import annotations

import ctypes
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from skep.clusters.discovered import Discovery, read_discovery
from skep.clusters.read import read_text
from skep.core.cells.layout import Layout
from skep.core.checked import BadPlan, checked_plan
from skep.core.cluster import Cluster
from skep.core.errors import InputError, SkepError
from skep.core.events import ATTACHES, ClusterChanged, Event, PolicyChanged, PolicyFailed
from skep.core.job import JobState
from skep.core.memory import At
from skep.core.model import JobSpec, shown_to
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.record import PlanRecord, decode_plan, encode_plan
from skep.core.refusal import Cause, Refusal
from skep.core.snapshot import fork
from skep.core.solving import OpenQuestion, encode_problem
from skep.core.state import State
from skep.core.step import PlannerChange, Scheduler
from skep.core.weights import EQUAL, Weights
from skep.core.why import why
from skep.files.text import Texts
from skep.policies.idle import NO_POLICY
from skep.policies.own import own_line
from skep.policies.registry import Setting
from skep.policies.shared.build import build_whole, guaranteed_gpus
from skep.service.solvers import Question

LIMIT_S = 30.0
"""The time limit of one call of a policy. Everything else waits meanwhile, so policies should stay far below it."""

Work = Callable[[], Any]  # the call of a policy; its result goes to the caller

Job = tuple[Work, "Future[Any]"]  # the result of the call


class TooSlow(SkepError):
    """The call was abandoned."""


class Bounded:
    """A thread for policies, so that a policy that does not return can be abandoned and the writer continues.

    The policy works on a copy of the state, so abandoning it costs only its thread. It is ended by an exception in its
    next line of Python; a call outside of Python stays until it returns.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Job | None] | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        """When the present call began; 0: there is none."""

    @property
    def waits_s(self) -> float:
        """Since when the present call runs."""
        asked_s = self._asked_s
        return time.monotonic() - asked_s if asked_s else 0.0

    def __call__(self, work: Work) -> Any:  # the result of the call
        """What `work` returns or raises; `TooSlow` if it exceeds the limit. One call at a time."""
        with self._lock:
            if self._inbox is None:
                self._begin()
            assert self._inbox is not None
            future: Future[Any] = Future()  # the result of the call
            self._asked_s = time.monotonic()
            self._inbox.put((work, future))
            try:
                return future.result(self.limit_s)
            except TimeoutError:
                if future.done():
                    raise  # its own
                self._leave_behind()
                raise TooSlow(f"no answer within {self.limit_s:g} s") from None
            finally:
                self._asked_s = 0.0

    def _begin(self) -> None:
        self._inbox = queue.SimpleQueue()
        self._thread = threading.Thread(target=serve, args=(self._inbox,), name="policy", daemon=True)
        self._thread.start()

    def _leave_behind(self) -> None:
        thread, self._inbox = self._thread, None
        if thread is not None and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.put(None)


def serve(inbox: queue.SimpleQueue[Job | None]) -> None:
    while (item := inbox.get()) is not None:
        work, future = item
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del item, work, future  # otherwise the last copy of the state stays in memory until the next call


log = logging.getLogger("skep")

KNOWN_MAX = 1000

Build = Callable[[Cluster], Planner]
Call = Callable[[Work], Any]  # returns what the work returns
"""Runs a function: directly, or with a time limit (`service/planning.py`)."""


def at_once(work: Work) -> Any:  # the result of the work
    return work()


class Fault(msgspec.Struct, frozen=True):
    """A planner failed: how, and the VC whose planner it was ("": no VC in particular)."""

    error: str
    vc: str = ""


class Ground(msgspec.Struct):
    """The cluster and the policy as last logged. `text` is the cluster's file or spec."""

    name: str = ""
    text: str = ""
    policy: str = ""
    layout: Layout | None = None
    discovery: Discovery | None = None
    """How the nodes that the engine finds become those of the cluster; None: the file names them."""
    files: dict[str, dict[str, str]] = {}
    """The text of each file of the `policy`, the `previous` one, and the policies in the `cluster`, by path."""
    offers: frozenset[Need] = frozenset(Need)
    """What the engine can do."""
    weights: Weights = EQUAL
    """Of users and virtual clusters."""
    _guaranteed: dict[str, int] | None = None

    def read(self) -> Cluster:
        cluster, self.layout = read_text(self.text, self.name)
        self.discovery = read_discovery(self.text)
        self._guaranteed = None
        return cluster

    def guaranteed(self) -> dict[str, int]:
        """GPUs that each VC owns; empty without VCs."""
        if self._guaranteed is None:
            self._guaranteed = guaranteed_gpus(self.layout) if self.layout is not None else {}
        return self._guaranteed

    def owned(self) -> dict[str, int]:
        """GPUs of each VC that any of its jobs may use: none, if all its cells are pinned."""
        layout = self.layout
        return {} if layout is None else {vc: n if layout.vcs[vc].grants else 0 for vc, n in self.guaranteed().items()}

    def follow(self, events: Sequence[Event]) -> Cluster | None:
        """Follow changes of the policy and of the cluster. Returns the new cluster, if there is one."""
        cluster = None
        for event in events:
            if isinstance(event, PolicyChanged):
                if self.policy != event.policy:
                    self.files["previous"] = self.files.get("policy", {})
                self.policy = event.policy
                self.files["policy"] = event.files
            elif isinstance(event, PolicyFailed):
                self.replace(event)
            elif isinstance(event, ClusterChanged):
                self.name, self.text = event.name, event.text
                self.files["cluster"] = event.files
                cluster = self.read()
        return cluster

    def after(self, *events: ClusterChanged | PolicyChanged) -> tuple[Ground, Cluster | None]:
        """The ground after these changes, and the new cluster if one of them has one."""
        ground = msgspec.structs.replace(self, files=dict(self.files))
        return ground, ground.follow(events)

    def replace(self, fault: PolicyFailed) -> None:
        if not fault.vc:
            self.policy = fault.instead
            self.files["policy"] = self.files.pop("previous", {})
        elif self.layout is not None:
            self.layout.vcs[fault.vc].policy = fault.instead

    def own_policy(self, vc: str) -> str:
        """The policy of a VC; empty if it has the policy of the cluster."""
        return self.layout.vcs[vc].policy if self.layout is not None and vc in self.layout.vcs else ""

    def planner(self, cluster: Cluster) -> Planner:
        texts = Texts({**self.files.get("cluster", {}), **self.files.get("policy", {})})
        return build_whole(
            self.policy, Setting(cluster, texts=texts, offers=self.offers, weights=self.weights), self.layout
        )


class Planning:
    def __init__(self, call: Call = at_once) -> None:
        self.call = call
        self.scheduler: Scheduler | None = None
        """The planner on the copy; None if it failed to attach."""
        self.planner: Planner | None = None
        self.fault: Fault | None = None
        """The failure of a planner in a query; it is replaced in the next turn."""
        self.longest_s = 0.0
        """The longest time of a decision so far."""
        self.on_fault: Callable[[], None] = lambda: None
        """Requests that turn."""
        self.questions: list[Question] = []
        """Problems that planners want to have solved, for `service/solvers.py`."""
        self.never: dict[JobSpec, str] = {}
        """Answers of `why_never` since the last decision: calling the thread of policies for each of many jobs that are
        submitted at once would take longer than everything else."""

    def take_up(self, state: State, build: Build) -> Fault | None:
        """Attach a planner to a copy of this state."""
        self.scheduler = self.planner = self.fault = None
        self.never = {}
        twin = fork(state)

        def make() -> Scheduler:
            self.planner = build(twin.cluster)
            return Scheduler(twin, self.planner, self._note_question)

        try:
            self.scheduler = self.call(make)
        except BaseException as error:
            return self._fault(error)
        return None

    def _note_question(self, planner: Planner, state: State, at: At, asked: OpenQuestion) -> None:
        """The answer comes later: the planner goes on with the last one."""
        problem = planner.problem(state, state.memory, at)
        self.questions.append(Question(asked.number, at, problem.solver, encode_problem(problem)))

    def take_questions(self) -> list[Question]:
        questions, self.questions = self.questions, []
        return questions

    def begin(self, state: State, build: Build) -> tuple[list[PlanRecord], Fault | None]:
        """Attach another planner to this state; it decides about everything."""
        fault = self.take_up(state, build)
        scheduler = self.scheduler
        if scheduler is None:
            return [], fault

        def decide() -> None:
            scheduler.decide()
            scheduler.state.send()

        return self._decide(scheduler, decide)

    def step(self, at_s: float, events: list[Event]) -> tuple[list[PlanRecord], Fault | None]:
        """Apply the events and return the planner's decisions, up to its failure."""
        scheduler = self.scheduler
        if scheduler is None:
            return [], None
        is_attached = bool(events) and isinstance(events[0], ATTACHES)
        change = PlannerChange(lambda _: scheduler.planner) if is_attached else None
        return self._decide(scheduler, lambda: scheduler.step(at_s, events, change))

    def _decide(self, scheduler: Scheduler, work: Work) -> tuple[list[PlanRecord], Fault | None]:
        scheduler.plans = []
        self.never = {}

        def decide() -> tuple[list[bytes], BaseException | None]:
            failed = None
            try:
                work()
            except BaseException as error:
                failed = error
            return [encode_plan(plan) for plan in scheduler.plans], failed

        made: list[PlanRecord] = []
        began_s = time.perf_counter()
        try:
            encoded, failed = self.call(decide)
            made += map(decode_plan, encoded)
            fault = None if failed is None else self._fault(failed)
        except BaseException as error:
            fault = self._fault(error)
        self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
        return made, fault

    def _fault(self, error: BaseException) -> Fault:
        log.warning("a policy failed", exc_info=error)
        found = Fault(error_text(error), getattr(self.planner, "asked", ""))
        self.scheduler = None
        return found

    # Queries -----------------------------------------------------------------------------------------------------

    def why_never(self, spec: JobSpec) -> str:
        """Why such a job could never run here. Empty if the planner fails: the job is accepted, and another planner
        will decide."""
        scheduler, known = self.scheduler, self.never
        if scheduler is None:
            return ""
        kind = msgspec.structs.replace(spec, id="", group=None, needs=(), needs_groups=())
        if kind in known:
            return known[kind]
        try:
            seen = scheduler.state.candidate(shown_to(scheduler.planner.needs_in(spec.vc), spec))
            never = self.call(lambda: scheduler.planner.why_never(scheduler.state, seen))
            if not isinstance(never, str):
                raise TypeError(f"why_never gave {type(never).__name__} instead of a text")
        except BaseException as error:
            self.fault = self._fault(error)
            self.on_fault()
            return ""
        if len(known) < KNOWN_MAX:
            known[kind] = str(never)
        return str(never)

    def explain(self, limits: Mapping[str, Refusal | None]) -> dict[str, Refusal]:
        """Why each of these jobs waits, without those that no longer do; each comes with the limit that holds it. From
        any thread."""
        scheduler = self.scheduler

        def explain() -> bytes:
            assert scheduler is not None
            state, planner = scheduler.state, scheduler.planner
            waiting = [job for name in limits if (job := state.jobs.get(name)) and job.state is JobState.PENDING]
            return msgspec.msgpack.encode({job.id: why(state, planner, job, limits[job.id]) for job in waiting})

        failed = "its policy has failed"
        if scheduler is not None:
            try:
                return msgspec.msgpack.decode(self.call(explain), type=dict[str, Refusal])
            except BaseException as error:
                fault = self.fault = self._fault(error)
                self.on_fault()
                failed = f"its policy failed ({fault.error})"
        return dict.fromkeys(limits, Refusal("policy-failed", Cause.ORDER, failed, "another policy taking over"))


def commit_all(state: State, plans: list[PlanRecord]) -> tuple[list[PlanRecord], BadPlan | None]:
    """Commit these plans, up to the first invalid one. Returns those that were committed."""
    for number, plan in enumerate(plans):
        try:
            checked = checked_plan(state, plan)
        except BadPlan as error:
            return plans[:number], error
        state.commit(checked)
    return plans, None


def error_text(error: BaseException) -> str:
    """`AttributeError: …, line 9`: the line in the policy's own file, if it has one."""
    if isinstance(error, InputError):
        return str(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if own := own_line(error):
        return f"{text}, line {own[1]}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text}, {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else text


def short(policy: str) -> str:
    """A user's policy by the name of its file, without the folders."""
    file, dot_py, rest = policy.partition(".py:")
    return f"{Path(file).name}{dot_py}{rest}" if dot_py else policy


def sentence(fault: PolicyFailed) -> str:
    where = f" of VC {fault.vc}" if fault.vc else ""
    return f"policy {short(fault.policy)}{where} failed ({fault.error}); {in_charge(fault)}"


def in_charge(fault: PolicyFailed) -> str:
    if fault.instead == NO_POLICY:
        return "no policy decides until another one is chosen"
    instead = short(fault.instead)
    return f"the policy {instead} is in charge there" if fault.vc else f"the previous policy {instead} takes over"
