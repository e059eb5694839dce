"""The planner of a cluster that is shared: one planner in each VC, binding beneath them, lending after them.

1. every VC to which something happened plans on its own cells
2. its virtual gpus become physical ones; borrowers that run there are pushed out
3. borrowers whose VC has room again become owners where they stand
4. what is idle is lent to jobs that their VC has no room for
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import math
from collections.abc import Callable, Iterator

import msgspec

from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cells.layout import Layout, VcLayout
from skep.core.cells.tree import FREE, OPPORTUNISTIC, PhysicalCell, set_use
from skep.core.cluster import Allocation, bits
from skep.core.job import JobState
from skep.core.memory import BENEATH, LENT, OWNED, Change, Memory, Of, Owned, Slot
from skep.core.plan import Decision, Plan
from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.view import ClusterView, JobView, Trigger, View
from skep.policies.shared.clusters import (
    CellBooks,
    Lent,
    NumberBooks,
    NumberCluster,
    PrivateBooks,
    VcBooks,
    cell_books,
    with_cpu_pieces,
)
from skep.policies.shared.lend import InPlace, Kept, LendBooks, make_lender
from skep.policies.shared.vc import Asking, Vc, in_cell, why_never
from skep.policies.shared.view import VcView, key_of

CELLS, NUMBERS, PRIVATE = "cells", "numbers", "private"

ALONE = contextlib.nullcontext()
"""Around a decision that needs no other."""

LENDER = "(lend)"
"""Stands for the lender where others have the name of their VC."""


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """When a VC wants to be asked again."""

    at_s: float


WAKE = Slot("wake", Wake, Of.VC)


class Shared:
    """`make` gives the planner for a VC, told the VC's name, the policy its file names, and its cluster."""

    name = "shared"
    round_s = 0.0

    def __init__(self, layout: Layout, make: Callable[[str, str, ClusterView], Planner], sharing: str = CELLS) -> None:
        self.layout = layout
        self.make = make
        self.sharing = sharing
        self.asked = ""
        """The VC whose planner is at work now, or has failed."""

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.cells = Cells(self.layout)
        self.hardware = Hardware(self.cells, view.cluster.nodes)
        self.lent: Lent = {}
        self.borrowers: dict[int, JobView] = {}
        self.untried: dict[int, JobView] = {}
        """By seq: borrowers that were not tried as owners since something happened that could help them."""
        self.lent_to: dict[int, Allocation] = {}
        """What each borrower has, by its seq."""
        self.virtual: dict[int, Allocation] = {}
        """What each owner holds in terms of its VC, by its seq."""
        self.in_places: dict[str, InPlace] = {}
        self.had_bad_nodes = False
        self.lender = make_lender()
        self.kept = Kept(self.hardware) if self.sharing == CELLS else Kept()
        self.vcs: dict[str, Vc] = {}
        """Those of the layout by name, and each of their pinned cells as one by itself."""
        self.touched: dict[int, Vc] = {}
        """By number: those to which something may have happened since they were asked."""
        self.wakes: list[tuple[float, int, Vc]] = []
        """When VCs want to be asked again; an entry counts as long as its VC has that wake-up."""
        self.rewoken: dict[int, Vc] = {}
        """By number: those whose wake-up is another one than the memory says."""
        first = 0
        for name, vc in self.layout.vcs.items():
            for books in self._books(vc, view, first):
                first += len(books.shown.nodes)
                with Asking(self, name):
                    planner = self.make(name, vc.policy, books.shown)
                key = key_of(name, books.pinned)
                made = self.vcs[key] = Vc(len(self.vcs), name, key, books, VcView(view, books, name), planner)
                kept = WAKE.get(memory, key)
                self._set_wake(made, math.inf if kept is None else kept.at_s)
        self._take_up(view)
        self._follow_nodes(view)  # not before: a bad cell could be shown to a VC where it has work running elsewhere
        for each in self.vcs.values():
            with Asking(self, each.name):
                each.planner.attach(each.view, each.view.memory)
            if each.pipeline is not None:  # news to the VC first, and only then to the lender
                each.view.trigger.submitted += each.pipeline.unseen
            self.touched[each.number] = each
        self._attach_lender(view)

    def _attach_lender(self, view: View) -> None:
        """Who borrows runs there; who waits and may borrow waits there too."""
        self.lent_view = VcView(view, LendBooks(view.cluster, self.kept), LENDER)
        self.lent_view.held_jobs = self.borrowers
        self.lent_view.jobs = {
            job.id: job
            for job in view.jobs.values()
            if job.state is JobState.PENDING and (self.only_borrows(job) or self._was_refused(job))
        }
        self.lender.attach(self.lent_view, Memory())

    def _was_refused(self, job: JobView) -> bool:
        """Whether its VC has looked at it, and it may borrow."""
        return job.waiting is not None and self.may_borrow(job)

    def may_borrow(self, job: JobView) -> bool:
        return job.spec.preemptible and not job.spec.pinned and self.vc_of(job).borrows

    def _books(self, vc: VcLayout, view: View, first: int) -> Iterator[VcBooks]:
        own = cell_books(vc, self.cells, self.hardware, self.lent)
        if self.sharing == NUMBERS:
            yield NumberBooks(NumberCluster(view.cluster, sum(part.cluster.gpu_total for part in own)))
            return
        for part in own:
            yield PrivateBooks(part.cluster.specs, first, part.pinned) if self.sharing == PRIVATE else part
            first += len(part.cluster.nodes)

    def vc_of(self, job: JobView) -> Vc:
        return self.vcs[self._key(job) if job.spec.pinned else job.spec.vc]

    def _key(self, job: JobView) -> str:
        spec = job.spec
        return key_of(spec.vc, spec.pinned) if spec.pinned and self.sharing != NUMBERS else spec.vc

    def only_borrows(self, job: JobView) -> bool:
        """Opportunistic work never owns cells. Where nothing is lent it is merely the last in its VC."""
        return job.spec.priority < 0 and self.sharing == CELLS and not job.spec.pinned

    def _take_up(self, view: View) -> None:
        """Every running job is where its placement says, owner or borrower."""
        self.strays: list[JobView] = []
        """Running jobs of which nobody knows whether they own what they have: the cluster was another one before."""
        names = view.new_plan()
        parts = {vc.view.at for vc in self.vcs.values()}
        stale = view.memory.others(parts)
        self.stale = [change for change in stale if change.slot != WAKE.name or change.key not in self.vcs]
        """What forgets what is remembered of VCs, and of what jobs have, that have gone since it was written."""
        for job in view.jobs.values():
            vc = self.vcs.get(self._key(job))
            if vc is None:
                continue  # it ended when there still was such a VC
            if not self.only_borrows(job):
                vc.view.jobs[job.id] = job
            if job.bound is None:
                known = view.memory.jobs.get(job.id, ())
                self.stale += [Change(Of.JOB, job.id, slot, None) for slot in known if slot in BENEATH]
                continue
            owned = OWNED.get(view.memory, job.id)
            if owned is None or not vc.books.has_nodes(owned.allocation):
                self._lend(job, job.bound)
                if owned is not None:
                    self.stale.append(Change(Of.JOB, job.id, OWNED.name, None))
                if not LENT.get(view.memory, job.id):
                    self.strays.append(job)
            else:
                names.see_as(job, owned.allocation)
                vc.books.adopt(owned.allocation, owned.gpus, job.seq)
                self.virtual[job.seq] = owned.allocation
                vc.view.held_jobs[job.seq] = job

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for change in self.stale:
            plan.keep(change)
        self.stale = []
        to_lender = Trigger()
        if trigger.nodes_changed:
            self._follow_nodes(view)
            to_lender.nodes_changed = True
        with self.cells.books:  # doomed cells are settled when nothing is tried any more
            if self.strays:
                self._house_strays(view, plan)
            self._tell(plan, trigger, to_lender)
            is_freed = bool(trigger.ended or trigger.returned)
            if trigger.nodes_changed or (is_freed and (self.cells.bad_nodes or self.sharing == NUMBERS)):
                self._ask_all()
            for vc in self._to_ask(view.now_s):
                if vc.view.trigger.wakes:
                    with Asking(self, vc.name):
                        self._plan_vc(view, plan, vc, to_lender)
            if self.sharing == CELLS:
                if self.borrowers:
                    self._make_owners(view, plan, is_all=trigger.nodes_changed or self.had_bad_nodes)
                self._lend_idle(view, plan, to_lender)
        if self.cells.bad_nodes or self.had_bad_nodes:
            self._notice_health(view)
        plan.wake(self._next_wake(view, plan))
        return plan

    def _to_ask(self, now_s: float) -> list[Vc]:
        """Those to which something happened, and those that wanted to be asked by now: the cost of a decision does not
        grow with the number of VCs."""
        while self.wakes and self.wakes[0][0] <= now_s:
            at_s, _, vc = heapq.heappop(self.wakes)
            if vc.wake_s == at_s:
                self._trigger(vc).is_timer = True
                self._set_wake(vc, math.inf)
        found = [self.touched[number] for number in sorted(self.touched)]
        self.touched = {}
        for vc in found:
            self.untried.update(vc.borrowers)
        return found

    def _trigger(self, vc: Vc) -> Trigger:
        """Where to say what happened to it."""
        self.touched[vc.number] = vc
        return vc.view.trigger

    def _set_wake(self, vc: Vc, at_s: float) -> None:
        if at_s != vc.wake_s:
            vc.wake_s = at_s
            self.rewoken[vc.number] = vc
            if at_s < math.inf:
                heapq.heappush(self.wakes, (at_s, vc.number, vc))

    def _next_wake(self, view: View, plan: Plan) -> float | None:
        for vc in self.rewoken.values():
            kept = WAKE.get(view.memory, vc.key)
            if vc.wake_s != (math.inf if kept is None else kept.at_s):
                plan.remember(WAKE, vc.key, Wake(vc.wake_s) if vc.wake_s < math.inf else None)
        self.rewoken = {}
        while self.wakes and self.wakes[0][2].wake_s != self.wakes[0][0]:
            heapq.heappop(self.wakes)
        return self.wakes[0][0] if self.wakes else None

    def _follow_nodes(self, view: View) -> None:
        if self.sharing != CELLS:
            for vc in self.vcs.values():
                if isinstance(vc.books, PrivateBooks):
                    vc.books.follow(view.cluster)
                self._trigger(vc).nodes_changed = True
            return
        for name, is_up in self._machines(view).items():
            if (name in self.cells.bad_nodes) == is_up:
                self.cells.set_node(name, is_bad=not is_up)
        for vc in self.vcs.values():
            if isinstance(vc.books, CellBooks) and vc.books.follow_health():
                self._trigger(vc).nodes_changed = True

    def _ask_all(self) -> None:
        """Where a VC may have to wait for what others use (bad nodes are about, or only numbers are promised), it is
        asked whenever anything is given back."""
        for vc in self.vcs.values():
            if vc.pipeline is None or vc.pipeline.entries:
                self._trigger(vc).nodes_changed = True

    def _machines(self, view: View) -> dict[str, bool]:
        """Which machines are up, and ours alone: cells are promised whole. One with gpus of two types is two nodes, and
        up when both are."""
        found = dict.fromkeys(self.hardware.missing, False)
        for node, leaves in zip(view.cluster.nodes, self.hardware.leaves, strict=True):
            if leaves:
                found[leaves[0].node] = found.get(leaves[0].node, True) and node.is_up and not node.has_others
        return found

    def _notice_health(self, view: View) -> None:
        """What a VC sees of bad nodes can change when others give cells back: it is asked again at once."""
        for vc in self.vcs.values():
            if isinstance(vc.books, CellBooks) and vc.books.follow_health():
                self._trigger(vc).nodes_changed = True
                self._set_wake(vc, view.now_s)
        self.had_bad_nodes = bool(self.cells.bad_nodes)

    def _tell(self, plan: Plan, trigger: Trigger, to_lender: Trigger) -> None:
        """Each VC learns what happened to its jobs; what they held is free."""
        for job in trigger.started:
            vc = self.vc_of(job)
            self._trigger(vc).started.append(job)
            if job.seq in vc.borrowers:
                self.untried[job.seq] = job
        for job in trigger.withdrawn:
            self._trigger(self.vc_of(job)).withdrawn.append(job)
            to_lender.withdrawn.append(job)
        for job in trigger.submitted:
            vc = self.vc_of(job)
            if self.only_borrows(job):
                to_lender.submitted.append(job)
            else:
                vc.view.jobs[job.id] = job
                self._trigger(vc).submitted.append(job)
        for job in trigger.ended:  # what is remembered of it is forgotten by the state
            vc = self.vc_of(job)
            self._gone(plan, vc, job)
            self._trigger(vc).ended.append(job)
            to_lender.ended.append(job)
        for job in trigger.returned:
            vc = self.vc_of(job)
            slot = self._gone(plan, vc, job)
            if slot:
                plan.keep(Change(Of.JOB, job.id, slot, None))
            if self.only_borrows(job):
                to_lender.returned.append(job)
            else:
                self._trigger(vc).returned.append(job)

    def _gone(self, plan: Plan, vc: Vc, job: JobView) -> str:
        """The job holds nothing any more; the slot in which it is remembered that it did."""
        if vc.view.held_jobs.pop(job.seq, None) is not None:
            vc.books.ended(self.virtual.pop(job.seq), job.seq)
            return OWNED.name
        if job.seq in self.borrowers:
            self.lender.let_go(self.lent_view, plan, job)
            self._unlend(job)
            return LENT.name
        return ""

    def _plan_vc(self, view: View, plan: Plan, vc: Vc, to_lender: Trigger) -> None:
        trigger = vc.view.take_trigger()
        made = vc.planner.plan(vc.view, vc.view.memory, trigger)
        self._set_wake(vc, math.inf if made.wake_s is None else made.wake_s)
        for numbers in bundles_of(made.decisions):
            self._carry_out(view, plan, vc, made, numbers)
        for job, reason in made.rejects:
            plan.reject(job, why_never(vc, job, reason))
        self._remember(plan, vc, made)
        if vc.borrows and (trigger.submitted or trigger.returned):
            rejected = {job.seq for job, _ in made.rejects}
            fresh = (*trigger.submitted, *trigger.returned)
            waiting = [job for job in fresh if job.state is JobState.PENDING and job.seq not in rejected]
            to_lender.submitted += [job for job in waiting if self.may_borrow(job)]

    def _remember(self, plan: Plan, vc: Vc, made: Plan) -> None:
        """What a VC's planner writes down goes under the VC's name: others may use the same words."""
        for job, scope in made.joins:
            plan.wait(job, f"{vc.key}/{scope}")
        for scope, cause in made.refusals:
            plan.refuse(f"{vc.key}/{scope}", cause)
        plan.ends += made.ends
        for change in made.memory:
            plan.keep(change)
        for setting in made.settings:
            plan.set(setting)

    def _carry_out(self, view: View, plan: Plan, vc: Vc, made: Plan, numbers: list[int]) -> None:
        """Decisions of a VC that need each other, or one by itself, in physical terms."""
        if len(numbers) == 1 and not self.lent:  # nobody has to leave
            self._translate(view, plan, vc, made, numbers[0], self._home(view, vc, made.decisions[numbers[0]]))
            return
        homes = [self._home(view, vc, made.decisions[number]) for number in numbers]
        leavers = [self._borrowers_on(physical) for physical in homes]
        with plan.bundle() if len(numbers) > 1 or any(leavers) else ALONE:
            for number, physical, borrowers in zip(numbers, homes, leavers, strict=True):
                for job in borrowers:
                    self._push_out(view, plan, job)
                self._translate(view, plan, vc, made, number, physical)

    def _home(self, view: View, vc: Vc, decision: Decision) -> Allocation | None:
        """Where the job is to be; who is suspended or resumed stays where it is."""
        bound, after = view.jobs[decision.job_id].bound, decision.after
        if after is None:
            return None
        if bound is not None and after.memory is not None:
            return bound.suspended(after.memory)
        if bound is not None and bound.resumes_as is not None:
            return bound.resumes_as
        return vc.books.physical(after)

    def _translate(self, view: View, plan: Plan, vc: Vc, made: Plan, number: int, physical: Allocation | None) -> None:
        decision = made.decisions[number]
        job = view.jobs[decision.job_id]
        is_halted = physical is not None and physical.is_suspended
        was_halted = decision.before is not None and decision.before.is_suspended
        if physical is not None and decision.after is not None and self.sharing == CELLS and not is_halted | was_halted:
            physical = with_cpu_pieces(physical, decision.after, view.cluster)
        whole = Decision(job.id, job.bound, physical, decision.cause, until_s=decision.until_s)
        plan.translate(made, number, whole, is_booked=vc.books.is_whole)
        if decision.before is not None:
            plan.note(vc.books.forget(decision.before))
        if decision.after is None:
            self._disown(plan, vc, job)
            plan.remember(OWNED, job.id, None)
        else:
            self.lender.withdraw(job)
            self._own(plan, vc, job, decision.after)
            plan.remember(OWNED, job.id, Owned(decision.after, vc.books.gpus_behind(decision.after)))

    def _own(self, plan: Plan, vc: Vc, job: JobView, virtual: Allocation) -> None:
        """From now on this is what the job holds in terms of its VC."""
        before = self.virtual.get(job.seq)
        self.virtual[job.seq] = virtual
        vc.view.held_jobs[job.seq] = job

        def undo() -> None:
            if before is not None:
                self.virtual[job.seq] = before
            else:
                del self.virtual[job.seq], vc.view.held_jobs[job.seq]

        plan.note(undo)

    def _disown(self, plan: Plan, vc: Vc, job: JobView) -> None:
        del vc.view.held_jobs[job.seq]
        virtual = self.virtual.pop(job.seq)

        def undo() -> None:
            self.virtual[job.seq] = virtual
            vc.view.held_jobs[job.seq] = job

        plan.note(undo)

    # Lending ---------------------------------------------------------------------------------------------------

    def _borrowers_on(self, physical: Allocation | None) -> list[JobView]:
        """Who has to leave if these cells are wanted, in the order of their submission."""
        if physical is None or not self.lent:
            return []
        found = {
            seq
            for piece in physical.slices
            for leaf in self._leaves(piece.node, piece.gpus)
            for seq in self.lent.get(id(leaf), ())
        }
        return [self.borrowers[seq] for seq in sorted(found)]

    def _push_out(self, view: View, plan: Plan, job: JobView) -> None:
        if job.seq in self.borrowers:  # else another decision of the same bundle has pushed it out
            plan.stop(job, "lent cells are wanted back")
            plan.remember(LENT, job.id, None)
            self._end_loan(view, plan, job)

    def _end_loan(self, view: View, plan: Plan, job: JobView) -> None:
        physical = self.lent_to[job.seq]
        self.lender.let_go(self.lent_view, plan, job)
        self._unlend(job)
        plan.note(functools.partial(self._lend, job, physical))

    def _leaves(self, node: int, mask: int) -> list[PhysicalCell]:
        """Those that the layout has: a node may have joined since."""
        leaves = self.hardware.leaves[node]
        return [leaves[bit] for bit in bits(mask) if bit < len(leaves)]

    def _lend(self, job: JobView, physical: Allocation) -> None:
        seq = job.seq
        self.borrowers[seq] = job
        if not self.only_borrows(job):
            self.vc_of(job).borrowers[seq] = self.untried[seq] = job
        self.lent_to[seq] = physical
        for piece in physical.slices:
            for leaf in self._leaves(piece.node, piece.gpus):
                self.lent.setdefault(id(leaf), set()).add(seq)
                if leaf.priority == FREE:  # else shared, with another borrower or its owner
                    set_use(leaf, OPPORTUNISTIC)

    def _unlend(self, job: JobView) -> None:
        del self.borrowers[job.seq]
        self.vc_of(job).borrowers.pop(job.seq, None)
        self.untried.pop(job.seq, None)
        for piece in self.lent_to.pop(job.seq).slices:
            for leaf in self._leaves(piece.node, piece.gpus):
                others = self.lent[id(leaf)]
                others.remove(job.seq)
                if not others:
                    del self.lent[id(leaf)]
                    if leaf.priority == OPPORTUNISTIC:  # else in guaranteed use already
                        set_use(leaf, FREE)

    def _lend_idle(self, view: View, plan: Plan, trigger: Trigger) -> None:
        if self.lender.has_nobody(trigger) or not (trigger.wakes or plan.decisions):
            return
        if plan.decisions:
            self.lender.epoch += 1
        with self._kept_back(view):
            made = self.lender.plan(self.lent_view, Memory(), trigger)
        for number, decision in enumerate(made.decisions):
            plan.translate(made, number, decision, is_booked=True)
            self._begin_loan(plan, view.jobs[decision.job_id], decision)
        for job, scope in made.joins:
            if job.spec.priority < 0:
                plan.wait(job, f"{LENDER}/{scope}")
        for scope, cause in made.refusals:
            plan.refuse(f"{LENDER}/{scope}", cause)
        for job, reason in made.rejects:
            if job.spec.priority < 0:
                plan.reject(job, reason)

    @contextlib.contextmanager
    def _kept_back(self, view: View) -> Iterator[None]:
        """What is not lent is not free meanwhile."""
        trial = view.new_plan()
        if self.kept.masks:
            trial.reserve(self.kept.left(view.cluster))
        try:
            yield
        finally:
            trial.rollback(0)

    def _begin_loan(self, plan: Plan, job: JobView, decision: Decision) -> None:
        assert decision.after is not None
        plan.remember(LENT, job.id, True)
        self._lend(job, decision.after)
        plan.note(functools.partial(self._unlend, job))
        vc = self.vc_of(job)
        if vc.pipeline is not None:
            with Asking(self, vc.name):
                vc.pipeline.withdraw(job)

    def _house_strays(self, view: View, plan: Plan) -> None:
        """What a VC has room for is its own again where it stands, before anything new is started; the rest borrows."""
        for job in sorted(self.strays, key=lambda job: (job.rank, job.seq)):
            if job.seq in self.borrowers and not self._upgrade(view, plan, job):
                plan.remember(LENT, job.id, True)
        self.strays = []

    def _make_owners(self, view: View, plan: Plan, *, is_all: bool) -> None:
        """Whoever could not own what it has is tried again when its VC has changed, when somebody has left cells that
        it is in, or (`is_all`) when nodes are bad: the cost does not grow with the number of borrowers."""
        self._note_freed(is_all=is_all or bool(self.cells.bad_nodes))
        if not self.untried:
            return
        tries = [(job.rank, seq, job) for seq, job in self.untried.items()]
        heapq.heapify(tries)
        untried, self.untried = self.untried, {}
        while tries:
            rank, seq, job = heapq.heappop(tries)
            if job.state is not JobState.RUNNING:
                continue  # it is tried when it has started
            vc = self.vc_of(job)
            if not self._may_pass(vc, job):
                self.untried[seq] = job  # it may as time goes by
            elif self._upgrade(view, plan, job):  # others of the VC may be in the same cell
                self.untried.update(vc.borrowers)
                for other in vc.borrowers.values():
                    if other.seq not in untried and (other.rank, other.seq) > (rank, seq):
                        untried[other.seq] = other
                        heapq.heappush(tries, (other.rank, other.seq, other))
        for chain in self.cells.chains.values():
            chain.forget_freed()  # by tries

    def _note_freed(self, *, is_all: bool) -> None:
        for chain in self.cells.chains.values():
            is_all = is_all or chain.has_merged
            for cell in chain.freed.values():
                for leaf in cell.leaves():
                    for seq in self.lent.get(id(leaf), ()):
                        if not self.only_borrows(self.borrowers[seq]):
                            self.untried[seq] = self.borrowers[seq]
            chain.forget_freed()
        if is_all:
            own = (job for job in self.borrowers.values() if not self.only_borrows(job))
            self.untried.update((job.seq, job) for job in own)

    def _may_pass(self, vc: Vc, job: JobView) -> bool:
        if vc.pipeline is None:
            return False
        with Asking(self, vc.name):
            return vc.pipeline.may_pass(vc.view, job)

    def _upgrade(self, view: View, plan: Plan, job: JobView) -> bool:
        """Let a borrower own what it has, if its VC has such cells left."""
        vc = self.vc_of(job)
        if self.only_borrows(job) or vc.pipeline is None or vc.view.cluster.free_gpus() < job.gpus:
            return False
        virtual = self.in_place(vc).upgrade(job)
        if virtual is not None:
            self._make_owner(view, plan, vc, job, virtual)
        return virtual is not None

    def in_place(self, vc: Vc) -> InPlace:
        found = self.in_places.get(vc.key)
        if found is None:
            assert isinstance(vc.books, CellBooks)
            found = self.in_places[vc.key] = InPlace(vc.books)
        return found

    def _make_owner(self, view: View, plan: Plan, vc: Vc, job: JobView, virtual: Allocation) -> None:
        assert job.bound is not None
        assert vc.pipeline is not None
        self._end_loan(view, plan, job)
        gpus = tuple((piece.node, bit) for piece in job.bound.slices for bit in bits(piece.gpus))
        vc.books.adopt(virtual, gpus, job.seq)
        plan.note(functools.partial(vc.books.ended, virtual, job.seq))
        plan.see_as(job, virtual)
        self._own(plan, vc, job, virtual)
        plan.remember(OWNED, job.id, Owned(virtual, gpus))
        plan.remember(LENT, job.id, None)
        made = vc.view.new_plan()
        with Asking(self, vc.name):
            vc.pipeline.take_over(vc.view, made, job)
        self._remember(plan, vc, made)

    def why_never(self, view: View, job: JobView) -> str:
        if self.only_borrows(job):
            never = self.lender.why_never(self.lent_view, job)
            return f"{never} (pinned cells are not lent)" if never and self.kept.masks else never
        vc = self.vc_of(job)
        with Asking(self, vc.name):
            never = vc.planner.why_never(vc.view, job)
        return why_never(vc, job, never) if never else ""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        vc = self.vc_of(job)
        if self.only_borrows(job):
            with self._kept_back(view):
                return self.lender.explain(self.lent_view, Memory(), job)
        with Asking(self, vc.name):
            refusal = vc.planner.explain(vc.view, vc.view.memory, job)
        return in_cell(refusal, vc.books.pinned)


def bundles_of(decisions: list[Decision]) -> list[list[int]]:
    """The numbers of those that need each other, and of each that stands by itself."""
    found: list[list[int]] = []
    last = 0
    for number, decision in enumerate(decisions):
        if decision.bundle and decision.bundle == last:
            found[-1].append(number)
        else:
            found.append([number])
        last = decision.bundle
    return found
