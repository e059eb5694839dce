"""Borrowers whose VC has free cells again become owners in place."""

from __future__ import annotations

import functools
import heapq

from skep.core.allocation import Allocation, gpus_in
from skep.core.cells.cells import Cells
from skep.core.job import JobState
from skep.core.memory import LENT, OWNED, Owned
from skep.core.plan import Plan
from skep.core.view import JobView
from skep.policies.shared.cell_books import CellBooks
from skep.policies.shared.in_place import InPlace
from skep.policies.shared.lender import Lender
from skep.policies.shared.loans import Loans
from skep.policies.shared.translate import Translator
from skep.policies.shared.vc import Asking, Asks, Vc, Vcs


class Owners:
    def __init__(
        self, cells: Cells, vcs: Vcs, loans: Loans, lender: Lender, translator: Translator, asks: Asks
    ) -> None:
        self.cells = cells
        self.vcs = vcs
        self.loans = loans
        self.lender = lender
        self.translator = translator
        self.asks = asks
        self.strays: list[JobView] = []
        """Running jobs for which it is not known whether they own their cells, because the cluster was changed."""
        self.in_places: dict[str, InPlace] = {}

    def house_strays(self, plan: Plan) -> None:
        """Before anything new is started, running jobs become owners as far as their VC allows; the others borrow."""
        for job in sorted(self.strays, key=lambda job: (job.rank, job.seq)):
            if job.seq in self.loans.borrowers and not self._upgrade(plan, job):
                plan.remember(LENT, job.id, True)
        self.strays = []

    def make(self, plan: Plan) -> None:
        """A borrower is tried again when its VC has changed, when cells around it became free, or when there may be
        more spare cells: the cost does not grow with the number of borrowers."""
        self._note_freed()
        if not self.loans.untried:
            return
        untried, self.loans.untried = self.loans.untried, {}
        tries = [(job.rank, seq, job) for seq, job in untried.items()]
        heapq.heapify(tries)
        while tries:
            rank, seq, job = heapq.heappop(tries)
            if job.state is not JobState.RUNNING:
                continue  # it is tried when it has started
            vc = self.vcs.of(job)
            if not self._may_pass(vc, job):
                self.loans.untried[seq] = job  # it may change with time
            elif self._upgrade(plan, job):  # others of the VC may be in the same cell
                self.loans.untried.update(vc.borrowers)
                for other in vc.borrowers.values():
                    if other.seq not in untried and (other.rank, other.seq) > (rank, seq):
                        untried[other.seq] = other
                        heapq.heappush(tries, (other.rank, other.seq, other))
        for chain in self.cells.chains.values():
            chain.forget_freed()  # by tries

    def _note_freed(self) -> None:
        is_eased = False
        for chain in self.cells.chains.values():
            is_eased = is_eased or chain.is_eased
            if chain.freed or chain.is_eased:
                for cell in chain.freed.values():
                    self.loans.try_again(cell)
                chain.forget_freed()
        if is_eased:
            self.loans.try_all_again()

    def _may_pass(self, vc: Vc, job: JobView) -> bool:
        if vc.pipeline is None:
            return False
        self.asks.asked = vc.name
        may_pass = vc.pipeline.may_pass(vc.view, job)
        self.asks.asked = ""
        return may_pass

    def _upgrade(self, plan: Plan, job: JobView) -> bool:
        """Make a borrower the owner of its cells, if its VC has such cells left."""
        vc = self.vcs.of(job)
        if self.vcs.only_borrows(job) or vc.pipeline is None or vc.view.cluster.free_gpus() < job.gpus:
            return False
        virtual = self._in_place(vc).upgrade(job)
        if virtual is not None:
            self._make_owner(plan, vc, job, virtual)
        return virtual is not None

    def _in_place(self, vc: Vc) -> InPlace:
        found = self.in_places.get(vc.key)
        if found is None:
            assert isinstance(vc.books, CellBooks)
            found = self.in_places[vc.key] = InPlace(vc.books)
        return found

    def _make_owner(self, plan: Plan, vc: Vc, job: JobView, virtual: Allocation) -> None:
        assert job.bound is not None
        assert vc.pipeline is not None
        self.lender.end_loan(plan, job)
        gpus = tuple((piece.node, bit) for piece in job.bound.slices for bit in gpus_in(piece.gpus))
        vc.books.adopt(virtual, gpus, job.seq)
        plan.undo_by(functools.partial(vc.books.ended, virtual, job.seq))
        plan.see_as(job, virtual)
        self.translator.own(plan, vc, job, virtual)
        plan.remember(OWNED, job.id, Owned(virtual, gpus))
        plan.remember(LENT, job.id, None)
        made = vc.view.new_plan()
        with Asking(self.asks, vc.name):
            vc.pipeline.take_over(vc.view, made, job)
        vc.pass_on(made, plan)
