"""Changing running jobs: two kinds of parts of a pipeline.

A `Preemption` is called during the walk: it says which running jobs may be stopped to make room for one pending job. A
pipeline has one.

An `Adjuster` is called after the walk, and may change anything: move or resize running jobs, suspend and resume them,
start pending ones, limit or tune them. A pipeline has a tuple of them, which are called in turn; each sees the steps of
those before it. An adjuster does not depend on the order or the placement, so it can be combined with any. Time slices,
packing, migration against fragmentation, growing and shrinking are adjusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.allocate.base import Allocator
from skep.policies.estimate.duration import Duration
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order
from skep.policies.place import Place
from skep.policies.running import Running
from skep.policies.seats import Seats


class Preemption(Protocol):
    """Which running jobs may be stopped for a pending one."""

    @property
    def name(self) -> str: ...
    @property
    def preempts(self) -> bool:
        """True if jobs of the same priority may be stopped."""
        ...

    @property
    def is_by_order(self) -> bool:
        """True if which jobs may be stopped follows from priorities and keys alone."""
        ...

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        """No running job can be stopped for a pending one whose entry is not before this: a cheap test before
        `reachable`."""
        ...

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        """A superset of `candidates`, in any order. It is called first, because most attempts fail: the job would not
        fit even if all of these were stopped."""
        ...

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        """Running jobs that may be stopped for this pending one, in the order in which to stop them."""
        ...


class Walked(Protocol):
    """What adjusters see of the pipeline beside the view and the plan. It is up to date with every step of the plan
    when an adjuster is called; the adjuster's own steps are included after the call."""

    @property
    def order(self) -> Order: ...
    @property
    def allocate(self) -> Allocator: ...
    @property
    def place(self) -> Place: ...
    @property
    def estimate(self) -> Duration: ...
    def pending_jobs(self) -> Iterator[JobView]:
        """Jobs that the walk could not start, in the order in which they would start."""
        ...

    def offer_pending(self, attempt: Callable[[JobView], bool]) -> None:
        """Yield pending jobs in order. After a refused one, others with the same request (with `walk=strict`: of the
        same group) are skipped, because they do not fit either."""
        ...

    def walk_again(self) -> None:
        """Walk the queue once more after this call: more counts as free than before, although no job has left."""
        ...

    @property
    def epoch(self) -> int:
        """Increases when something happens that could help a job which did not fit."""
        ...

    @property
    def seats(self) -> Seats:
        """The seats of running jobs."""
        ...

    def running_jobs(self) -> Iterator[JobView]:
        """Launching and running jobs, the first to be stopped last. Keys are as of their last change, which is exact
        only if keys of running jobs are fixed (`Order.moves`)."""
        ...

    def suspended_jobs(self) -> Iterator[JobView]:
        """Suspended jobs, in the order of their suspension."""
        ...


class Adjuster(Protocol):
    """Changes jobs after the walk.

    Steps go into the plan only; `plan.mark` and `plan.rollback` allow trials, `plan.bundle` groups steps that depend on
    each other. The pipeline reads the decisions afterwards and updates its queue and its list of running jobs. If GPUs
    became free it walks its queue once more, before the next adjuster is called.

    What an adjuster must know later it keeps in the memory: a `Slot` and `plan.remember`. Everything in its own
    attributes must follow from view and memory, because `attach` may be called at any time.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[Need]:
        """What it requires. If the engine does not offer this, the pipeline is built without the adjuster (`usable`);
        optional features are checked by the adjuster itself, with `Setting.offers`."""
        ...

    def attach(self, view: View) -> None:
        """Rebuild what is derived from the view and its memory."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        """Add steps to the plan. Returns when to call it again if nothing happens before; `math.inf`: not needed."""
        ...


def usable(adjusters: Iterable[Adjuster], offers: frozenset[Need]) -> tuple[Adjuster, ...]:
    """The adjusters that an engine with these offers can support."""
    return tuple(adjuster for adjuster in adjusters if adjuster.needs <= offers)
