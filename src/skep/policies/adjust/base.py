"""What of the running jobs may be changed? Two kinds of parts answer this.

A `Preemption` is asked during the walk: which running jobs may be stopped to make room for one pending job. A pipeline
has one.

An `Adjuster` is asked after the walk, and may change anything: move or resize running jobs, suspend and resume them,
start pending ones, limit or tune them. A pipeline has a tuple of them, which are asked in turn; each sees the steps of
those before it. An adjuster knows neither the order nor the placement it works with, so that it can be combined with
any: time slices, packing, migration against fragmentation, growing and shrinking are adjusters.
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
from skep.policies.order.base import Order
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

    def may_help(self, order: Order, running: Running, entry: Entry) -> bool:
        """False only if no running job could be stopped for this pending one: a cheap test before `reachable`."""
        ...

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        """At least the jobs of `candidates`, in any order. It is asked first, because most attempts fail: the job would
        not fit if all of these left."""
        ...

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        """Running jobs that may be stopped for this pending one, in the order in which to stop them."""
        ...


class Walked(Protocol):
    """What adjusters see of the pipeline beside the view and the plan. It is up to date with every step of the plan
    when an adjuster is called; it follows the adjuster's own steps after the call."""

    @property
    def order(self) -> Order: ...
    @property
    def allocate(self) -> Allocator: ...
    @property
    def place(self) -> Place: ...
    @property
    def estimate(self) -> Duration: ...
    def pending_jobs(self) -> Iterator[JobView]:
        """Jobs that the walk could not start, the first to be started first."""
        ...

    def offer_pending(self, attempt: Callable[[JobView], bool]) -> None:
        """Offer pending jobs in order. After one that is refused, others of the same request (with `walk=strict`: of
        the same group) are left out: what does not fit one does not fit the others."""
        ...

    @property
    def seats(self) -> Seats:
        """Where running jobs sit."""
        ...

    def running_jobs(self) -> Iterator[JobView]:
        """Jobs that run or are about to, the first to be stopped last. Keys are those of the last change, which is
        exact only where keys of running jobs stand still (`Order.moves`)."""
        ...

    def suspended_jobs(self) -> Iterator[JobView]:
        """Suspended jobs, in the order of their suspension."""
        ...


class Adjuster(Protocol):
    """Changes jobs after the walk.

    Steps go into the plan and nowhere else; `plan.mark` and `plan.rollback` make trials, `plan.bundle` ties together
    what only makes sense as a whole. The pipeline reads the decisions afterwards and keeps its queue and its list of
    running jobs in step. If GPUs became free it walks its queue once more, before the next adjuster is asked.

    What an adjuster must know later it keeps in the memory: a `Slot` and `plan.remember`. Everything in its own
    attributes must follow from view and memory, because `attach` starts it again at any time.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[Need]:
        """What it cannot do without. Where the engine does not offer this, the pipeline is built without the adjuster
        (`usable`); what it can do without it decides by itself, by `Setting.offers`."""
        ...

    def attach(self, view: View) -> None:
        """Rebuild what is derived from the view and its memory."""

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        """Add steps to the plan. Returns when to be asked again if nothing happens before; `math.inf`: not needed."""
        ...


def usable(adjusters: Iterable[Adjuster], offers: frozenset[Need]) -> tuple[Adjuster, ...]:
    """The adjusters that an engine with these offers can carry out."""
    return tuple(adjuster for adjuster in adjusters if adjuster.needs <= offers)
