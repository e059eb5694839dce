"""What the planner of a VC sees: its own cluster, its own jobs, its own part of the memory."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from skep.core.memory import At
from skep.core.model import Need
from skep.core.plan import Plan
from skep.core.view import GroupView, JobView, Trigger, View, WaitingView
from skep.policies.shared.clusters import VcBooks

T = TypeVar("T")


class PrefixView(Mapping[str, T]):
    """The entries of a dictionary whose keys have a prefix."""

    def __init__(self, whole: Mapping[str, T], prefix: str) -> None:
        self.whole = whole
        self.prefix = prefix

    def __getitem__(self, key: str) -> T:
        return self.whole[self.prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self.prefix) for name in self.whole if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def key_of(vc: str, pinned: str) -> str:
    """The key of a pinned cell begins with the name of its VC, so that it is dropped together with the VC."""
    return f"{vc}/pinned {pinned}" if pinned else vc


class VcView:
    """A `View` of a VC."""

    def __init__(self, whole: View, books: VcBooks, name: str, needs: frozenset[Need]) -> None:
        self.whole = whole
        self.books = books
        self.name = name
        self.cluster = books.shown
        self.at: At = (name, books.pinned)
        self.memory = whole.memory.part(*self.at)
        self.waiting: PrefixView[WaitingView] = PrefixView(whole.waiting, f"{key_of(*self.at)}/")
        self.jobs: dict[str, JobView] = {}
        self.held_jobs: dict[int, JobView] = {}
        """Jobs on cells of the VC, not on borrowed ones."""
        self.needs = needs
        self.knowledge = whole.knowledge.of_vc(name, needs)
        self._empty = whole.new_plan().part(books.over, self.at)
        self.trigger = Trigger()
        """Events that this VC's planner has not seen yet."""

    @property
    def now_s(self) -> float:
        return self.whole.now_s

    @property
    def version(self) -> int:
        return self.whole.version

    @property
    def report_count(self) -> int:
        return self.whole.report_count

    @property
    def open_jobs(self) -> Mapping[int, JobView]:
        """All jobs: the owners of lent cells are jobs of other VCs."""
        return self.whole.open_jobs

    @property
    def groups(self) -> Mapping[str, GroupView]:
        """All groups: a group may have members in several VCs."""
        return self.whole.groups

    @property
    def pending_count(self) -> int:
        return self.whole.pending_count

    @property
    def submitted_count(self) -> int:
        return self.whole.submitted_count

    def has(self, job: JobView) -> bool:
        spec = job.spec
        is_new = (spec.vc, spec.pinned) == self.at and (spec.priority >= 0 or bool(spec.pinned))
        return is_new or job.id in self.jobs

    def placed_jobs(self) -> list[JobView]:
        return list(self.held_jobs.values())

    def new_plan(self) -> Plan:
        return self._empty.anew()

    def blank(self) -> View:
        return VcView(*self.books.blank(self.whole), self.name, self.needs)

    def unusable(self) -> Mapping[str, str]:
        numbers, nodes = self.books.nodes_behind(), self.whole.cluster.nodes
        names = None if numbers is None else {nodes[number].name for number in numbers}
        return {name: word for name, word in self.whole.unusable().items() if names is None or name in names}

    @contextlib.contextmanager
    def with_nodes(self, names: Collection[str]) -> Iterator[Plan]:
        """Which virtual nodes would be bound to which others is not known: they are all up if all nodes are."""
        is_all_up = bool(names) and len(names) == len(self.unusable())
        with self.whole.with_nodes(names), self.books.all_up() if is_all_up else contextlib.nullcontext():
            plan = self.new_plan()
            try:
                yield plan
            finally:
                plan.rollback(0)

    def take_trigger(self) -> Trigger:
        trigger = self.trigger
        self.trigger = Trigger()
        return trigger


def as_view(view: VcView) -> View:
    """Lets the type checker verify that it is a `View`."""
    return view
