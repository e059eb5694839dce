"""Solving beside the scheduler: a planner asks, `solve` answers, and each plan follows from the latest answer.

A solving planner calls `plan.ask(view)` and decides nothing in that plan. The scheduler then takes its `problem`, a
value and the name of a pure function, and the answer enters the log as the event `Solved`: at once in a simulation,
from another process in a server. Until it comes, and if none comes, the planner is
called again and decides by the last answer. What was asked and answered is part of the planner's memory, so a snapshot,
a replay and a fork have it.
"""

from __future__ import annotations

import functools
import importlib
import typing
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from skep.core.errors import SkepError
from skep.core.events import Solved
from skep.core.memory import ALL, At, Memory, MemoryChange, Slot


class Unsolved(SkepError):
    """The problem has no solution, or none was found within the iterations that the solver allows itself."""


class OpenQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question without an answer so far. Its number is the version of the state in which it was asked."""

    number: int
    at_s: float


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """The latest answer, encoded."""

    number: int
    asked_s: float
    at_s: float
    answer: bytes


class SolveFailed(msgspec.Struct, frozen=True, array_like=True):
    """Why there was no answer to the latest questions, and to how many in a row."""

    at_s: float
    error: str
    count: int


ASKED = Slot("asked", OpenQuestion, ALL)
ANSWERED = Slot("answered", Answered, ALL)
SOLVE_FAILED = Slot("solve-failed", SolveFailed, ALL)


class SolverProblem(NamedTuple):
    """`solver` is `package.module:function`, a pure function of the value."""

    solver: str
    value: msgspec.Struct


def settle(memory: Memory, now_s: float, event: Solved) -> bool:
    """Book an answer or a failure. False: it is stale."""
    part = memory.part(*event.at)
    asked = ASKED.get(part)
    if asked is None or asked.number != event.number:
        return False
    changes: list[tuple[str, object]] = [(ASKED.name, None)]
    if event.answer is None:
        before = SOLVE_FAILED.get(part)
        count = 1 if before is None else before.count + 1
        changes.append((SOLVE_FAILED.name, SolveFailed(now_s, event.error, count)))
    else:
        changes.append((ANSWERED.name, Answered(asked.number, asked.at_s, now_s, event.answer)))
        changes.append((SOLVE_FAILED.name, None))
    for slot, value in changes:
        memory.take_in(MemoryChange(ALL, "", slot, value, event.at))
    return True


def outstanding(memory: Memory) -> Iterator[tuple[At, OpenQuestion]]:
    """The questions without an answer, by the part of the memory."""
    for vc, pinneds in memory.parts.items():
        for pinned in pinneds:
            asked = ASKED.get(memory.part(vc, pinned))
            if asked is not None:
                yield (vc, pinned), asked


class SolverStatus(msgspec.Struct, frozen=True):
    """Of the planner of a VC, or of the whole cluster: what it decides by, and what it waits for."""

    vc: str
    answered_s: float | None
    """When the answer in force came."""
    asked_s: float | None
    """Since when the planner waits for another one; None: it does not."""
    error: str = ""
    """Why the latest question had no answer; empty: it had one."""
    failures: int = 0
    """Questions in a row without an answer."""


def solver_status(memory: Memory) -> list[SolverStatus]:
    """Empty if no policy solves."""
    found = []
    for vc, pinneds in memory.parts.items():
        for pinned in pinneds:
            part = memory.part(vc, pinned)
            asked, answered, failed = ASKED.get(part), ANSWERED.get(part), SOLVE_FAILED.get(part)
            if asked or answered or failed:
                found.append(
                    SolverStatus(
                        vc,
                        None if answered is None else answered.at_s,
                        None if asked is None else asked.at_s,
                        "" if failed is None else failed.error,
                        0 if failed is None else failed.count,
                    )
                )
    return found


LATE_S = 30.0
"""A solver that has worked for longer than this is worth a sentence."""


def solver_sentence(status: SolverStatus, now_s: float) -> str:
    """What is wrong with the solver of a planner; empty if nothing is."""
    is_late = status.asked_s is not None and now_s - status.asked_s > LATE_S
    if not status.error and not is_late:
        return ""
    where = f" of VC {status.vc}" if status.vc else ""
    age = (
        "none came before"
        if status.answered_s is None
        else f"that of {now_s - status.answered_s:.0f} s ago is in force"
    )
    if status.error:
        return f"the solver of the policy{where} gave no answer ({status.error}); {age}"
    return f"the solver of the policy{where} has worked for {now_s - (status.asked_s or 0.0):.0f} s; {age}"


def answer_words(memory: Memory, now_s: float) -> str:
    """For explanations: how old the answer in force is, and why there is no newer one. Empty if all is well."""
    answered, failed, asked = ANSWERED.get(memory), SOLVE_FAILED.get(memory), ASKED.get(memory)
    if failed is None and (asked is None or asked.at_s >= now_s):
        return ""
    age = (
        "there is no answer of the solver yet"
        if answered is None
        else f"the answer in force is {now_s - answered.at_s:.0f} s old"
    )
    if failed is not None:
        return (
            f"{age}; the last {failed.count} had an error: {failed.error}"
            if failed.count > 1
            else f"{age}; the last failed: {failed.error}"
        )
    assert asked is not None
    return f"{age}; the solver has worked on the next for {now_s - asked.at_s:.0f} s"


# Solving ------------------------------------------------------------------------------------------------------------

Solver = Callable[[msgspec.Struct], msgspec.Struct]
ENCODER = msgspec.msgpack.Encoder()


@functools.cache
def solver_named(name: str) -> tuple[Solver, type]:
    """The function and the type of its problem, which is the type of its first parameter."""
    module, _, function = name.partition(":")
    found: Solver = getattr(importlib.import_module(module), function)
    hints = typing.get_type_hints(found)
    return found, next(kind for parameter, kind in hints.items() if parameter != "return")


def solve_here(problem: SolverProblem) -> bytes:
    """In line, as a simulation does it. Raises `Unsolved`."""
    return ENCODER.encode(solver_named(problem.solver)[0](problem.value))


def encode_problem(problem: SolverProblem) -> bytes:
    return ENCODER.encode(problem.value)


def solve_encoded(solver: str, problem: bytes) -> bytes:
    """The same of an encoded problem, in another process."""
    function, kind = solver_named(solver)
    return ENCODER.encode(function(msgspec.msgpack.decode(problem, type=kind)))
