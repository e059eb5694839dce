"""The two contracts everything else meets at: who decides, and who carries it out."""

from __future__ import annotations

from typing import Any, Protocol

from skep.core.actions import Action
from skep.core.events import Batch, Event
from skep.core.job import Job
from skep.core.plan import Plan
from skep.core.refusal import Refusal
from skep.core.state import State, Trigger

Memory = dict[str, Any]
"""What a policy remembers, as values that can be written down; part of the state."""


class Planner(Protocol):
    """From the state of the cluster to the state we want. No clock, no chance, no I/O.

    What a planner keeps for speed must follow from the state and the memory alone: `attach` rebuilds it when the
    planner starts, after a recovery, on a fork and on a policy switch.
    """

    name: str

    def attach(self, view: State, memory: Memory) -> None: ...

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan: ...

    def why_never(self, view: State, job: Job) -> str:
        """Why a job could not run here even if nobody else were there; nothing: it could."""

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal: ...


class Engine(Protocol):
    """Carries out actions and says what happened. The simulator is the engine whose clock jumps."""

    def observe(self, until_s: float) -> Batch | None:
        """The next events, none later than `until_s` (a `TimerDue` when that comes first); `None` at the end."""

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        """Begin these, and return what is known at once."""
