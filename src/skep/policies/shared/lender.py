"""Lending of idle cells: the order of borrowers, and the cells that are not lent."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Hashable, Iterable, Iterator

import msgspec

from skep.core.cells.hardware import Hardware
from skep.core.cells.tree import PhysicalCell
from skep.core.cluster import Allocation, Slice, bits
from skep.core.job import JobState
from skep.core.memory import LENT, Memory
from skep.core.plan import Decision, Plan, PlanBooks
from skep.core.refusal import Refusal
from skep.core.view import ClusterView, JobView, View
from skep.policies.adjust.preempt import FIRST
from skep.policies.lines import Entry
from skep.policies.order.base import Key, Order
from skep.policies.order.shares import ByUse
from skep.policies.pipeline import Pipeline
from skep.policies.place.simple import Consolidate
from skep.policies.running import Running
from skep.policies.shared.agenda import Agenda
from skep.policies.shared.clusters import VcBooks
from skep.policies.shared.loans import Loans
from skep.policies.shared.vc import CELLS, Asking, Asks, Vcs
from skep.policies.shared.view import VcView

LENDER = "(lend)"
"""The name under which the lender's memory is kept, in place of a VC name."""

NO_MEMORY = Memory()
NOTHING_KEPT = contextlib.nullcontext()


class LeastBorrowed(ByUse):
    """The VC that has borrowed the fewest GPUs goes first."""

    has_groups = ranks_groups = True

    def group(self, job: JobView) -> Hashable:
        return job.spec.vc

    def group_key(self, group: Hashable) -> float:
        return self.used_by(group)


class NoPreemption:
    """Borrowers never preempt each other, whatever their priorities; only owners take back lent cells."""

    name = "none"
    preempts = False
    is_by_order = False

    def edge(self, order: Order, running: Running) -> tuple[Key, ...]:
        return FIRST

    def reachable(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return ()

    def candidates(self, view: View, order: Order, running: Running, entry: Entry) -> Iterable[JobView]:
        return ()


class LendPipeline(Pipeline):
    """The lender is a planner too: over the physical cluster, for jobs that do not fit in their VCs."""

    def __init__(self, whole: View) -> None:
        super().__init__(name="lend", order=LeastBorrowed(), place=Consolidate(), preempt=NoPreemption())
        self.whole = whole

    @contextlib.contextmanager
    def trials(self) -> Iterator[None]:
        """Owners are seen where they are on the hardware, as borrowers are."""
        names = self.whole.new_plan()
        for job in self.whole.placed_jobs():
            if job.bound is not None:
                names.see_as(job, job.bound)
        try:
            yield
        finally:
            names.rollback(0)

    def holders(self, view: View, job: JobView) -> list[JobView]:
        """Borrowers before owners: the cells of an owner go to its VC first."""
        borrowers = super().holders(view, job)
        return borrowers + [each for each in self.whole.placed_jobs() if each not in borrowers]

    def go_before(self, holders: Collection[JobView], *, more_nodes: bool) -> list[JobView]:
        """Those of the VCs that own the cells; which VC would own those of more nodes is not known."""
        vcs = {job.spec.vc for job in holders if job.seq not in self.running.by_seq}
        return [
            job
            for job in (self.whole.open_jobs.values() if vcs or more_nodes else ())
            if job.state is JobState.PENDING and job.is_ready and job.spec.priority >= 0
            if more_nodes or job.spec.vc in vcs
        ]


class PinnedGpus:
    """GPUs of pinned cells, which are only for jobs that name them: they are not lent, even if idle."""

    def __init__(self, hardware: Hardware | None = None) -> None:
        self.masks: dict[int, int] = {}
        """By node."""
        for node, leaves in enumerate(hardware.leaves if hardware is not None else ()):
            mask = sum(1 << bit for bit, leaf in enumerate(leaves) if pinned_around(leaf))
            if mask:
                self.masks[node] = mask

    def left(self, cluster: ClusterView) -> Allocation:
        """All idle GPUs of pinned cells, and what is left of those in use. A GPU in a share mode is not lent anyway."""
        slices = []
        for number, mask in self.masks.items():
            node = cluster.nodes[number]
            slices.append(Slice(number, node.free_mask & mask))
            in_parts = (gpu for gpu in bits(mask & ~node.free_mask) if not any(each.mode for each in node.tenants(gpu)))
            slices += [Slice(number, 1 << gpu, milli=left) for gpu in in_parts if (left := node.milli_left(gpu))]
        return Allocation(tuple(slices), 0)


class LendBooks(VcBooks):
    """The whole cluster as the lender sees it; cells that are not lent are reserved while it plans."""

    is_whole = True

    def __init__(self, whole: ClusterView, kept: PinnedGpus) -> None:
        self.whole = whole
        self.kept = kept

    @property
    def shown(self) -> ClusterView:
        return self.whole

    def over(self, whole: PlanBooks) -> PlanBooks:
        return whole

    def blank(self, whole: View) -> tuple[View, VcBooks]:
        blank = whole.blank()
        blank.new_plan().reserve(self.kept.left(blank.cluster))
        return blank, LendBooks(blank.cluster, self.kept)


def pinned_around(leaf: PhysicalCell) -> str:
    """The pinned cell that it is in."""
    cell: PhysicalCell | None = leaf
    while cell is not None and not cell.is_pinned:
        cell = cell.parent
    return cell.virtual.pinned if cell is not None and cell.virtual is not None else ""


class Lender:
    """A planner over the physical cluster, for jobs that do not fit in their VCs."""

    def __init__(self, view: View, vcs: Vcs, loans: Loans, kept: PinnedGpus, agenda: Agenda, asks: Asks) -> None:
        self.whole = view
        self.vcs = vcs
        self.loans = loans
        self.kept = kept
        self.agenda = agenda
        self.asks = asks
        self.pipeline = LendPipeline(view)
        self.view = VcView(view, LendBooks(view.cluster, kept), LENDER, frozenset())
        self.view.held_jobs = loans.borrowers

    def attach(self) -> None:
        """Borrowers are its running jobs; pending jobs that may borrow are its queue."""
        self.view.jobs = {
            job.id: job
            for job in self.whole.jobs.values()
            if job.state is JobState.PENDING and (self.vcs.only_borrows(job) or self._was_refused(job))
        }
        self.pipeline.attach(self.view, NO_MEMORY)

    def _was_refused(self, job: JobView) -> bool:
        """True if its VC has examined it, and it may borrow."""
        return job.waiting is not None and self.vcs.may_borrow(job)

    def lend(self, plan: Plan) -> None:
        """Start jobs on idle cells."""
        trigger = self.view.trigger
        if self.vcs.sharing != CELLS or self.pipeline.has_no_work(trigger):
            trigger.ended.clear()
            if trigger.withdrawn:
                trigger.withdrawn.clear()
            trigger.nodes_changed = False
            return
        if not (trigger.wakes() or plan.decisions):
            return
        if plan.decisions:
            self.pipeline.walk_again()
        with self._kept_back():
            made = self.pipeline.plan(self.view, NO_MEMORY, self.view.take_trigger())
        for number, decision in enumerate(made.decisions):
            plan.translate(made, number, decision, is_booked=True)
            self._begin_loan(plan, self.whole.jobs[decision.job_id], decision)
        for job, scope in made.joins:
            if job.spec.priority < 0:
                plan.wait(job, f"{LENDER}/{scope}")
        for scope, cause in made.refusals:
            plan.refuse(f"{LENDER}/{scope}", cause)
        for job, reason in made.rejects:
            if job.spec.priority < 0:
                plan.reject(job, reason)

    def _kept_back(self) -> contextlib.AbstractContextManager[None]:
        """Reserve what is not lent."""
        return self._reserved() if self.kept.masks else NOTHING_KEPT

    @contextlib.contextmanager
    def _reserved(self) -> Iterator[None]:
        trial = self.whole.new_plan()
        trial.reserve(self.kept.left(self.whole.cluster))
        try:
            yield
        finally:
            trial.rollback(0)

    def _begin_loan(self, plan: Plan, job: JobView, decision: Decision) -> None:
        assert decision.after is not None
        plan.remember(LENT, job.id, True)
        self.loans.begin(job, decision.after)
        plan.undo_by(functools.partial(self.loans.end, job))
        vc = self.vcs.of(job)
        if vc.pipeline is not None:
            with Asking(self.asks, vc.name):
                vc.pipeline.withdraw(job)
            self.agenda.retries[vc.number] = vc

    def push_out(self, plan: Plan, job: JobView) -> None:
        if job.seq in self.loans.borrowers:  # else another decision of the same bundle has evicted it
            plan.stop(job, "its borrowed cells were taken back")
            plan.remember(LENT, job.id, None)
            self.end_loan(plan, job)

    def end_loan(self, plan: Plan, job: JobView) -> None:
        physical = self.loans.held[job.seq]
        self.let_go(plan, job)
        plan.undo_by(functools.partial(self.loans.begin, job, physical))

    def let_go(self, plan: Plan, job: JobView) -> None:
        """A borrower no longer holds lent cells."""
        self.pipeline.let_go(self.view, plan, job)
        self.loans.end(job)

    def withdraw(self, job: JobView) -> None:
        """Its VC has started it."""
        self.pipeline.withdraw(job)

    def why_never(self, job: JobView) -> str:
        never = self.pipeline.why_never(self.view, job)
        return f"{never} (pinned cells are not lent)" if never and self.kept.masks else never

    def explain(self, job: JobView) -> Refusal:
        with self._kept_back():
            refusal = self.pipeline.explain(self.view, NO_MEMORY, job)
        return msgspec.structs.replace(refusal, reason=f"on cells that others leave idle: {refusal.reason}")
