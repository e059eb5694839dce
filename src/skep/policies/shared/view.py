"""What the planner of a VC is shown: its own cluster, its own jobs, its own part of the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from skep.core.cluster import Cluster
from skep.core.job import Job
from skep.core.refusal import Waiting
from skep.core.state import State, Trigger

T = TypeVar("T")


class Part(Mapping[str, T]):
    """The entries of a dictionary whose names begin with a prefix."""

    def __init__(self, whole: dict[str, T], prefix: str) -> None:
        self.whole = whole
        self.prefix = prefix

    def __getitem__(self, key: str) -> T:
        return self.whole[self.prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self.prefix) for name in self.whole if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class VcView:
    """A `State` as far as a planner reads it."""

    def __init__(self, state: State, cluster: Cluster, name: str) -> None:
        self.state = state
        self.cluster = cluster
        self.memory: Part[Any] = Part(state.memory, f"{name}/")
        self.waiting: Part[Waiting] = Part(state.waiting, f"{name}/")
        self.jobs: dict[str, Job] = {}
        self.held_jobs: dict[int, Job] = {}
        """Those that run on cells of the VC, not on lent ones."""
        self.trigger = Trigger()
        """What this VC's planner has not been told yet."""

    @property
    def now_s(self) -> float:
        return self.state.now_s

    @property
    def pending_count(self) -> int:
        return self.state.pending_count

    @property
    def submitted_count(self) -> int:
        return self.state.submitted_count

    def placed_jobs(self) -> list[Job]:
        return list(self.held_jobs.values())

    def take_trigger(self) -> Trigger:
        trigger = self.trigger
        self.trigger = Trigger()
        return trigger
