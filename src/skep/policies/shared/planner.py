"""The planner of a shared cluster: one planner in each VC, binding below them, lending after them.

1. every VC with new events plans on its own cells                          `agenda.py`
2. its virtual GPUs become physical ones; borrowers there are evicted       `translate.py`
3. borrowers whose VC has free cells again become owners in place           `owners.py`
4. idle cells are lent to jobs that do not fit in their VC                  `lender.py`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cells.layout import Layout, VcLayout
from skep.core.job import JobState
from skep.core.memory import BENEATH, LENT, OWNED, At, Memory, MemoryChange, Of
from skep.core.model import Need
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.refusal import Refusal
from skep.core.solving import SolverProblem
from skep.core.view import ClusterView, JobView, Trigger, View
from skep.policies.shared.agenda import WAKE, Agenda
from skep.policies.shared.cell_books import cell_books
from skep.policies.shared.clusters import NumberBooks, NumberCluster, PrivateBooks, VcBooks
from skep.policies.shared.health import SHOWN, CellHealth
from skep.policies.shared.lender import Lender, PinnedGpus
from skep.policies.shared.loans import Loans
from skep.policies.shared.owners import Owners
from skep.policies.shared.translate import Translator
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE, Asking, Vc, Vcs, in_vc, why_never
from skep.policies.shared.view import VcView, key_of


class VcPlanner:
    """`make` builds the planner of a VC from the VC's name, the policy that its file names, and its cluster."""

    name = "shared"
    round_s = 0.0
    drifts = False

    def __init__(
        self,
        layout: Layout,
        make: Callable[[str, str, ClusterView], Planner],
        sharing: str = CELLS,
        needs: Mapping[str, frozenset[Need]] = MappingProxyType({}),
    ) -> None:
        self.layout = layout
        self.make = make
        self.needs = needs
        """What the policy of each VC declares."""
        self.declared = frozenset().union(*needs.values())
        self.sharing = sharing
        self.asked = ""
        """The VC whose planner is running or has failed."""
        self.fresh: VcPlanner | None = None
        """Explains within a round, at `fresh_version` of the view."""
        self.fresh_version = 0

    def needs_in(self, vc: str) -> frozenset[Need]:
        return self.needs.get(vc, frozenset())

    # Derived from the state ------------------------------------------------------------------------------------

    def attach(self, view: View, memory: Memory) -> None:
        self.cells = Cells(self.layout)
        self.hardware = Hardware(self.cells, view.cluster.nodes)
        self.vcs = Vcs(self.sharing)
        self.agenda = Agenda()
        self.loans = Loans(self.hardware, self.vcs, {})
        kept = PinnedGpus(self.hardware) if self.sharing == CELLS else PinnedGpus()
        self.lender = Lender(view, self.vcs, self.loans, kept, self.agenda, self)
        self.translator = Translator(view, self.sharing, self.loans, self.lender)
        self.owners = Owners(self.cells, self.vcs, self.loans, self.lender, self.translator, self)
        self._make_vcs(view, memory)
        self.health = CellHealth(self.cells, self.hardware, self.vcs, self.agenda)
        self._take_up(view)
        # Not earlier: a bad cell could be shown to a VC that has work elsewhere.
        self.health.attach(view.cluster, memory)
        for vc in self.vcs.values():
            with Asking(self, vc.name):
                vc.planner.attach(vc.view, vc.view.memory)
            trigger = self.agenda.trigger(vc)
            if vc.pipeline is not None:  # new to the VC first, and only then to the lender
                trigger.submitted += vc.pipeline.unseen
        self.lender.attach()

    def _make_vcs(self, view: View, memory: Memory) -> None:
        first = 0
        for name, layout in self.layout.vcs.items():
            for books in self._books(layout, view, first):
                first += len(books.shown.nodes)
                with Asking(self, name):
                    planner = self.make(name, layout.policy, books.shown)
                key = key_of(name, books.pinned)
                vc = self.vcs[key] = Vc(
                    len(self.vcs), name, key, books, VcView(view, books, name, self.needs_in(name)), planner
                )
                self.agenda.take_up(vc, memory)

    def _books(self, vc: VcLayout, view: View, first: int) -> Iterator[VcBooks]:
        own = cell_books(vc, self.cells, self.hardware, self.loans.lent)
        if self.sharing == NUMBERS:
            yield NumberBooks(NumberCluster(view.cluster, sum(part.cluster.gpu_total for part in own)))
            return
        for part in own:
            yield PrivateBooks(part.cluster.specs, first, part.pinned) if self.sharing == PRIVATE else part
            first += len(part.cluster.nodes)

    def _take_up(self, view: View) -> None:
        """Enter every running job, as owner or borrower."""
        names = view.new_plan()
        stale = view.memory.others({vc.view.at for vc in self.vcs.values()})
        gone = [change for change in stale if change.slot != WAKE.name or change.key not in self.vcs]
        self.stale = [change for change in gone if change.slot != SHOWN.name]
        """The changes that remove memory of VCs, and of allocations of jobs, that no longer exist."""
        for job in view.jobs.values():
            vc = self.vcs.get(self.vcs.key(job))
            if vc is None:
                continue  # it ended when the VC still existed
            if not self.vcs.only_borrows(job):
                vc.view.jobs[job.id] = job
            if job.bound is None:
                known = view.memory.jobs.get(job.id, ())
                self.stale += [MemoryChange(Of.JOB, job.id, slot, None) for slot in known if slot in BENEATH]
                continue
            owned = OWNED.get(view.memory, job.id)
            if owned is None or not vc.books.has_nodes(owned.allocation):
                self.loans.begin(job, job.bound)
                if owned is not None:
                    self.stale.append(MemoryChange(Of.JOB, job.id, OWNED.name, None))
                if not LENT.get(view.memory, job.id):
                    self.owners.strays.append(job)
            else:
                names.see_as(job, owned.allocation)
                self.translator.adopt(vc, job, owned)

    # The decision ----------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for change in self.stale:
            plan.keep(change)
        self.stale = []
        with self.cells.books:
            self._tell(plan, trigger)
        # After the exits: a planner that was attached within the round already knows these.
        if trigger.nodes_changed:
            self.health.follow(view.cluster)
            self.lender.view.trigger.nodes_changed = True
        elif self.health.changed:  # released cells may have been bound to bad ones
            self.health.update_vcs()
        with self.cells.books:  # doomed cells are settled after all trials
            if self.owners.strays:
                self.owners.house_strays(plan)
            self._ask(view, plan)
            if self.loans.borrowers and self.sharing == CELLS:
                self.owners.make(plan)
            self.lender.lend(plan)
        if self.health.changed:
            self.health.notice(view.now_s)
        self.health.remember(plan)
        plan.wake(self.agenda.next_wake(view.memory, plan))
        return plan

    def _tell(self, plan: Plan, trigger: Trigger) -> None:
        """Pass events to the VCs of the jobs; what the jobs held is free."""
        vcs, tell, lender = self.vcs, self.agenda.trigger, self.lender.view.trigger
        for job in trigger.started:
            vc = vcs.of(job)
            if vc.view.trigger.add_start(job):  # else the VC learns it when something else happens
                tell(vc)
            if job.seq in vc.borrowers:
                self.loans.untried[job.seq] = job
        for job in trigger.withdrawn:
            tell(vcs.of(job)).withdrawn.append(job)
            lender.withdrawn.append(job)
        for job in trigger.submitted:
            if vcs.only_borrows(job):
                lender.submitted.append(job)
            else:
                vc = vcs.of(job)
                vc.view.jobs[job.id] = job
                tell(vc).submitted.append(job)
        for job in trigger.ended:  # the state drops its memory
            vc = vcs.of(job)
            self._gone(plan, vc, job)
            tell(vc).ended.append(job)
            lender.ended.append(job)
        for job in trigger.returned:
            vc = vcs.of(job)
            slot = self._gone(plan, vc, job)
            if slot:
                plan.keep(MemoryChange(Of.JOB, job.id, slot, None))
            (lender if vcs.only_borrows(job) else tell(vc)).returned.append(job)
        for at in trigger.solved:
            if (vc_of := vcs.get(key_of(*at))) is not None:
                tell(vc_of).solved.append(at)
        is_freed = bool(trigger.ended or trigger.returned)
        if trigger.nodes_changed or (is_freed and self.sharing == NUMBERS):
            self.agenda.ask_waiting(vcs.values())
        elif is_freed and self.cells.bad_nodes:
            self.agenda.retry()

    def _gone(self, plan: Plan, vc: Vc, job: JobView) -> str:
        """The job no longer holds anything. Returns the slot in which its allocation was remembered."""
        if self.translator.let_go(vc, job):
            return OWNED.name
        if job.seq in self.loans.borrowers:
            self.lender.let_go(plan, job)
            return LENT.name
        return ""

    def _ask(self, view: View, plan: Plan) -> None:
        """Call the planners of all VCs with new events."""
        for vc in self.agenda.due(view.now_s):
            trigger = vc.view.trigger
            is_changed = True
            if trigger.wakes():
                self.asked = vc.name
                is_changed = self._plan_vc(plan, vc) or not is_only_submitted(trigger)
            if is_changed and vc.borrowers:
                self.loans.untried.update(vc.borrowers)
        self.asked = ""

    def _plan_vc(self, plan: Plan, vc: Vc) -> bool:
        """Call the planner of one VC. True if it has decided anything."""
        trigger = vc.view.take_trigger()
        vc.books.is_refused = False
        if vc.pipeline is not None and vc.pipeline.absorb(trigger):
            self.agenda.set_wake(vc, None)
            self.agenda.asked(vc, trigger)
            return False
        made = vc.planner.plan(vc.view, vc.view.memory, trigger)
        self.agenda.set_wake(vc, made.wake_s)
        if made.decisions:
            self.translator.carry_out(plan, vc, made)
        if made.asks:
            plan.asks += made.asks
            self.agenda.trigger(vc).is_timer = True  # it is called again, with the answer or without
        for job, reason in made.rejects:
            plan.reject(job, why_never(vc, job, reason))
        vc.pass_on(made, plan)
        if self.agenda.retries or vc.books.is_refused:
            self.agenda.asked(vc, trigger)
        if vc.borrows and self.sharing == CELLS and (trigger.submitted or trigger.returned):
            self._offer(vc, made, (*trigger.submitted, *trigger.returned))
        return bool(made.decisions)

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        """That of the VC's planner which has asked."""
        vc = self.vcs[key_of(*at)]
        with Asking(self, vc.name):
            return vc.planner.problem(vc.view, vc.view.memory, at)

    def _offer(self, vc: Vc, made: Plan, fresh: tuple[JobView, ...]) -> None:
        """Jobs that do not fit in their VC may borrow."""
        waiting = [job for job in fresh if job.state is JobState.PENDING]
        rejected = {job.seq for job, _ in made.rejects} if waiting else ()
        for job in waiting:
            if job.seq not in rejected and self.vcs.may_borrow(job):
                self.lender.view.trigger.submitted.append(job)

    # Explanations ----------------------------------------------------------------------------------------------

    def why_never(self, view: View, job: JobView) -> str:
        if self.vcs.only_borrows(job):
            return self.lender.why_never(job)
        vc = self.vcs.of(job)
        with Asking(self, vc.name):
            never = vc.planner.why_never(vc.view, job)
        return why_never(vc, job, never) if never else ""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        if self.round_s:
            return self._up_to_date(view, memory).explain(view, memory, job)
        if self.vcs.only_borrows(job):
            return self.lender.explain(job)
        vc = self.vcs.of(job)
        is_refused = vc.books.is_refused  # trials may set it
        with Asking(self, vc.name), self.cells.books:
            refusal = vc.planner.explain(vc.view, vc.view.memory, job)
        vc.books.is_refused = is_refused
        return in_vc(refusal, vc)

    def _up_to_date(self, view: View, memory: Memory) -> VcPlanner:
        """A planner that knows the present state. Within a round this one does not know yet who has left."""
        if self.fresh is None or self.fresh_version != view.version:
            self.fresh, self.fresh_version = VcPlanner(self.layout, self.make, self.sharing, self.needs), view.version
            self.fresh.attach(view, memory)
        return self.fresh


def is_only_submitted(trigger: Trigger) -> bool:
    """True if jobs were only submitted: their VC has no more free cells than before."""
    others = trigger.ended or trigger.returned or trigger.withdrawn or trigger.started
    return not (others or trigger.nodes_changed or trigger.is_timer)
