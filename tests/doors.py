"""A guard: every write to the state comes through one of its doors, and each field of a job is written by the doors
that the table in `core/job.py` allows. `reconcile`, which `send` calls, writes nothing. Only writes of the package
itself count; tests may set up what they like."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

from skep.core import state as state_module
from skep.core.job import DERIVED, SEEN, SENT, WANTED, Job
from skep.core.orders import Orders
from skep.core.state import State

DOORS = ("advance", "commit", "send")
MAY_WRITE = {
    **dict.fromkeys(WANTED, ("advance", "commit")),
    **dict.fromkeys(SENT, ("advance", "send")),
    **dict.fromkeys(SEEN, ("advance",)),
    **dict.fromkeys(DERIVED, ("advance", "commit")),
}
IN_TRIAL = ("allocation", "state")
"""What a plan in trial writes, and takes back."""
INDEXES = ("dirty", "held_jobs", "jobs", "leaving", "moving", "open_jobs")

MAKERS = {
    ("skep.core.snapshot", ""),
    ("skep.core.state", "blank"),
    ("skep.core.state", "candidate"),
    ("skep.core.state", "show"),
    *((f"skep.core.{each}", "__init__") for each in ("job", "state", "orders")),
}
"""Modules and functions that make states: they write what nobody else can see yet. `show` changes what a planner may
read, when it is attached; `why_never` asks about a copy, `_check` about a job
that is not submitted yet."""


class WroteBesideTheDoors(AssertionError):
    """The state was written by something that is not one of its doors."""


class Guard:
    def __init__(self) -> None:
        self.open: list[str] = []
        """The doors that are being used, the innermost last."""

    def check(self, what: str, doors: tuple[str, ...], in_trial: bool = False, depth: int = 2) -> None:
        """`depth`: how many calls below the writer this is."""
        module, function = writer(sys._getframe(depth))
        if not module.startswith("skep."):
            return
        if {(module, ""), (module, function)} & MAKERS or (in_trial and module == "skep.core.plan"):
            return
        if not self.open or self.open[-1] not in doors:
            where = f"inside {self.open[-1]}" if self.open else "outside every door"
            raise WroteBesideTheDoors(f"{module}.{function} writes {what} {where}")

    def inside(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, during which this door is open; of a function that is no door, none is."""

        def through(*args: Any) -> Any:
            self.open.append(name)
            try:
                return original(*args)
            finally:
                self.open.pop()

        return through

    def set_job(self, job: Job, name: str, value: object) -> None:
        self.check(f"`{name}` of a job", MAY_WRITE[name], name in IN_TRIAL, depth=3)
        object.__setattr__(job, name, value)

    def set_part(self, owner: State | Orders, name: str, value: object) -> None:
        self.check(f"`{name}` of the state", DOORS, depth=3)
        if name in INDEXES and isinstance(value, dict):
            value = GuardedIndex(self, name, value)
        object.__setattr__(owner, name, value)


def writer(frame: FrameType | None) -> tuple[str, str]:
    """The module and the function that write. A method of a job, `State.wake` and `State.suit` act for others."""
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if function == "__init__" or (module != "skep.core.job" and function not in ("wake", "suit")):
            return module, function
        frame = frame.f_back
    raise AssertionError("nobody writes")


class GuardedIndex(dict[Any, Any]):
    """A dictionary of the state whose entries are guarded too."""

    def __init__(self, guard: Guard, name: str, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self.guard, self.name = guard, name

    def __setitem__(self, key: object, value: object) -> None:
        self.guard.check(f"an entry of `{self.name}`", DOORS)
        super().__setitem__(key, value)

    def __delitem__(self, key: object) -> None:
        self.guard.check(f"an entry of `{self.name}`", DOORS)
        super().__delitem__(key)

    def setdefault(self, key: object, default: object = None) -> Any:
        self.guard.check(f"an entry of `{self.name}`", DOORS)
        return super().setdefault(key, default)

    def pop(self, key: object, *default: object) -> Any:
        self.guard.check(f"an entry of `{self.name}`", DOORS)
        return super().pop(key, *default)


@contextmanager
def guarded() -> Iterator[None]:
    """States that are made inside are guarded."""
    guard = Guard()
    with ExitStack() as stack:
        for name in DOORS:
            stack.enter_context(patch.object(State, name, guard.inside(name, getattr(State, name))))
        pure = guard.inside("reconcile", state_module.reconcile)
        stack.enter_context(patch.object(state_module, "reconcile", pure))
        setters = {Job: Guard.set_job, State: Guard.set_part, Orders: Guard.set_part}
        for kind, setter in setters.items():
            stack.enter_context(patch.object(kind, "__setattr__", as_method(guard, setter)))
        yield


def as_method(guard: Guard, setter: Callable[..., None]) -> Callable[..., None]:
    return lambda owner, name, value: setter(guard, owner, name, value)
