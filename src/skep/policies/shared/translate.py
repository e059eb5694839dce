"""Translates decisions of a VC's planner into physical terms: which GPUs, which borrowers must leave, and how to undo
it."""

from __future__ import annotations

import contextlib
import functools

from skep.core.cluster import Allocation
from skep.core.memory import OWNED, Owned
from skep.core.plan import Decision, Plan
from skep.core.view import JobView, View
from skep.policies.shared.cell_books import with_cpu_pieces
from skep.policies.shared.lender import Lender
from skep.policies.shared.loans import Loans
from skep.policies.shared.vc import CELLS, Vc

ALONE = contextlib.nullcontext()
"""For a decision without a bundle."""

Homes = dict[str, Allocation | None]
"""The wanted allocations of jobs, by id, in physical terms."""

Change = tuple[Allocation | None, Allocation | None]
"""Where a job is and where it is to be, in physical terms."""


class Translator:
    def __init__(self, view: View, sharing: str, loans: Loans, lender: Lender) -> None:
        self.view = view
        self.is_bound = sharing == CELLS
        self.loans = loans
        self.lender = lender
        self.virtual: dict[int, Allocation] = {}
        """What each owner holds in terms of its VC, by its seq."""

    def carry_out(self, plan: Plan, vc: Vc, made: Plan) -> None:
        """Translate all decisions of this plan of a VC."""
        if len(made.decisions) == 1:
            self._carry_out_one(plan, vc, made)
            if made.decisions[0].before is None:
                return  # a start releases nothing
        else:
            homes: Homes = {}
            for numbers in bundles_of(made.decisions):
                self._carry_out(plan, vc, made, numbers, homes)
        left: dict[int, Allocation] = {}
        for decision in made.decisions:
            before = decision.before
            if before is not None and before is not self.view.jobs[decision.job_id].allocation:
                left[id(before)] = before
        for before in left.values():
            plan.undo_by(vc.books.forget(before))

    def _carry_out_one(self, plan: Plan, vc: Vc, made: Plan) -> None:
        """The usual case: one decision, for which no borrower must leave."""
        decision = made.decisions[0]
        job = self.view.jobs[decision.job_id]
        home = self._home(vc, decision, job.bound)
        leavers = self.loans.on(home) if self.loans.counts else ()
        if not leavers:
            self._translate(plan, vc, made, [0], [(job.bound, home)])
            return
        with plan.bundle():
            for borrower in leavers:
                self.lender.push_out(plan, borrower)
            self._translate(plan, vc, made, [0], [(job.bound, home)])

    def _carry_out(self, plan: Plan, vc: Vc, made: Plan, numbers: list[int], homes: Homes) -> None:
        """Translate a bundle or a single decision. `homes`: the allocations of jobs that this plan has decided
        about."""
        leavers = self._leavers(vc, made, numbers, homes)
        with plan.bundle() if len(numbers) > 1 or any(leavers) else ALONE:
            for together in joined(made.decisions, numbers):
                for number in together:
                    for borrower in leavers[number - numbers[0]]:
                        self.lender.push_out(plan, borrower)
                changes = [self._change(vc, made.decisions[number], homes) for number in together]
                after = self._translate(plan, vc, made, together, changes)
                homes.update(zip([made.decisions[number].job_id for number in together], after, strict=True))

    def _change(self, vc: Vc, decision: Decision, homes: Homes) -> Change:
        bound = homes.get(decision.job_id, self.view.jobs[decision.job_id].bound)
        return bound, self._home(vc, decision, bound)

    def _leavers(self, vc: Vc, made: Plan, numbers: list[int], homes: Homes) -> list[list[JobView]]:
        """The borrowers that must leave for each of these decisions."""
        found = []
        homes = dict(homes)
        for number in numbers:
            job_id = made.decisions[number].job_id
            bound = homes.get(job_id, self.view.jobs[job_id].bound)
            homes[job_id] = self._home(vc, made.decisions[number], bound)
            found.append(self.loans.on(homes[job_id]))
        return found

    def _home(self, vc: Vc, decision: Decision, bound: Allocation | None) -> Allocation | None:
        """The physical allocation of the job; a suspended, resumed or reshared job stays in place."""
        after = decision.after
        if after is None:
            return None
        if bound is not None:
            if after.memory is not None:
                return bound.suspended(after.memory)
            if bound.resumes_as is not None:
                return bound.resumes_as
            if is_reshared(decision):
                return bound.with_terms_of(after)
        return vc.books.physical(after)

    def _translate(
        self, plan: Plan, vc: Vc, made: Plan, numbers: list[int], changes: list[Change]
    ) -> list[Allocation | None]:
        """From their present places to their new allocations, with everything that follows: one decision, or moves
        that are booked together."""
        whole = [self._whole(made.decisions[number], change) for number, change in zip(numbers, changes, strict=True)]
        plan.translate(made, numbers[0], *whole, is_booked=vc.books.is_whole)
        for number in numbers:
            self._note_owner(plan, vc, made.decisions[number])
        return [decision.after for decision in whole]

    def _whole(self, decision: Decision, change: Change) -> Decision:
        """The decision in physical terms."""
        bound, home = change
        if home is not None and decision.after is not None and self.is_bound and not stays(decision):
            home = with_cpu_pieces(home, decision.after, self.view.cluster)
        return Decision(
            decision.job_id, bound, home, decision.cause, until_s=decision.until_s, together=decision.together
        )

    def _note_owner(self, plan: Plan, vc: Vc, decision: Decision) -> None:
        job, after = self.view.jobs[decision.job_id], decision.after
        if after is None:
            self.disown(plan, vc, job)
            plan.remember(OWNED, job.id, None)
        else:
            self.lender.withdraw(job)
            self.own(plan, vc, job, after)
            plan.remember(OWNED, job.id, Owned(after, vc.books.gpus_behind(after)))

    # Owners ----------------------------------------------------------------------------------------------------

    def adopt(self, vc: Vc, job: JobView, owned: Owned) -> None:
        """Enter an owner that already runs there."""
        vc.books.adopt(owned.allocation, owned.gpus, job.seq)
        self.virtual[job.seq] = owned.allocation
        vc.view.held_jobs[job.seq] = job

    def own(self, plan: Plan, vc: Vc, job: JobView, virtual: Allocation) -> None:
        """From now on the job holds this in terms of its VC."""
        plan.undo_by(functools.partial(self._set, vc, job, self.virtual.get(job.seq)))
        self._set(vc, job, virtual)

    def disown(self, plan: Plan, vc: Vc, job: JobView) -> None:
        plan.undo_by(functools.partial(self._set, vc, job, self.virtual[job.seq]))
        self._set(vc, job, None)

    def _set(self, vc: Vc, job: JobView, virtual: Allocation | None) -> None:
        if virtual is None:
            del self.virtual[job.seq], vc.view.held_jobs[job.seq]
        else:
            self.virtual[job.seq] = virtual
            vc.view.held_jobs[job.seq] = job

    def let_go(self, vc: Vc, job: JobView) -> bool:
        """Remove an owner whose physical GPUs are already free. False: it owned nothing."""
        if vc.view.held_jobs.pop(job.seq, None) is None:
            return False
        vc.books.ended(self.virtual.pop(job.seq), job.seq)
        return True


def stays(decision: Decision) -> bool:
    """True if the job is suspended, resumed or reshared in place."""
    before, after = decision.before, decision.after
    return (
        (before is not None and before.resumes_as is not None)
        or (after is not None and after.resumes_as is not None)
        or is_reshared(decision)
    )


def is_reshared(decision: Decision) -> bool:
    before, after = decision.before, decision.after
    return before is not None and after is not None and after.has_seats_of(before)


def bundles_of(decisions: list[Decision]) -> list[list[int]]:
    """The indexes of the decisions of each bundle, and of each decision without one."""
    found: list[list[int]] = []
    last = 0
    for number, decision in enumerate(decisions):
        if decision.bundle and decision.bundle == last:
            found[-1].append(number)
        else:
            found.append([number])
        last = decision.bundle
    return found


def joined(decisions: list[Decision], numbers: list[int]) -> list[list[int]]:
    """The indexes of decisions that are booked in one step, in order."""
    found: list[list[int]] = []
    for number in numbers:
        if decisions[number].together and found:
            found[-1].append(number)
        else:
            found.append([number])
    return found
