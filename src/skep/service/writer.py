"""The single writer: everything that happens goes through `turn`, and nothing else writes while a server runs.

A turn collects commands and reports of engines, lets the scheduler decide, writes all of it as one transaction, and
only then answers the commands and gives the engine its actions. A crash at any point loses nothing: before the write
nothing was promised, after it the state has what is still to be done.

There is no thread and no clock in here, so that a seeded simulation can drive it through any order of faults.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from skep.core.actions import Action, named
from skep.core.checked import BadPlan
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.events import (
    ClockStepped,
    ClusterChanged,
    Event,
    JobHeld,
    JobsForgotten,
    PolicyChanged,
    PolicyFailed,
    Solved,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksStarted,
    TimerDue,
)
from skep.core.needs import Need
from skep.core.nodes import Membership, changes_due, differences
from skep.core.ports import Capability, EngineCommands, StaleEpoch
from skep.core.record import Entry, PlanRecord, encode
from skep.core.reports import Exited, Fenced, LaunchFailed, Launching, Looked, Report
from skep.core.snapshot import dump, fork
from skep.core.solving import outstanding
from skep.core.timers import BACK_OFF
from skep.core.weights import EQUAL, Weights
from skep.jobs.request import UNLIMITED, LimitRules, Request
from skep.policies.idle import NO_POLICY
from skep.service.book import Book, Record, owner_of, shown_state
from skep.service.found import FoundNodes
from skep.service.limits import Limiter
from skep.service.planning import Call, Fault, Planning, at_once, commit_all, sentence, short
from skep.service.progress import Measure, PresentFigures, Reports, nobody_measured
from skep.service.receive import Received, receive, stop_overruns
from skep.service.recover import recover, wanted
from skep.service.searches import judged
from skep.service.solvers import Question
from skep.service.store import Notice, Snapshot, Store, Writes
from skep.service.turn import (
    Command,
    Lendable,
    NotYet,
    Turn,
    add_names,
    changed_by,
    ended_by,
    job_of,
    note_placed,
    notify_action,
    notify_exited,
    notify_launching,
    notify_moved,
    notify_needs_failed,
    notify_rejected,
    notify_started,
    notify_stopped_by_group,
    preemptors,
)

SNAPSHOT_EVERY = 20_000
"""The number of events between two snapshots: this many are replayed in well under a second."""

ENDED_KEPT = 5_000
"""The smallest number of ended jobs that the state keeps, for policies that learn from them; the store has all of
them."""

LAST_RESORT = "fifo"
"""The fallback if no policy before the one that failed is known."""


class Writer:
    def __init__(
        self,
        store: Store,
        now_s: float,
        *,
        opening: tuple[ClusterChanged, PolicyChanged] | None = None,
        limits: LimitRules = UNLIMITED,
        call: Call = at_once,
        offers: frozenset[Need] = frozenset(Need),
        capabilities: frozenset[Capability] = frozenset(Capability),
        measure: Measure = nobody_measured,
        weights: Weights = EQUAL,
    ) -> None:
        """`opening` is the cluster and the policy for a new store; policies are called through `call`; `capabilities`
        are what jobs may ask of the engine; `measure` returns the speeds that are known on a cluster."""
        self.store = store
        self.capabilities = capabilities
        self.book = Book()
        self.limits = Limiter(limits)
        self.engine: EngineCommands | None = None
        self.epoch = 0
        """The epoch of this server: the engine ignores servers with an earlier one than the latest."""
        self._is_looking = False
        """True if timers are due and the engine was asked what has ended, which must be received first."""
        self.lock = Lendable()
        """Held while the state changes; other threads hold it while they read. It is lent at points where the state can
        be read, although the book may have jobs that the state does not have yet."""
        self.turns = 0
        self.decide_s = self.commit_s = 0.0
        """Seconds spent so far, for monitoring."""
        self.listeners: list[Callable[[list[Notice], list[int]], None]] = []
        """Called with the notices of a turn and the numbers of new and changed jobs."""
        self.policy_failures = 0
        self.solver_failures = 0
        """Questions of policies that had no answer, since the start."""
        self.own_needs: dict[str, frozenset[Need]] = {}
        """The needs that user-written policies have declared since the start."""
        self.figures = PresentFigures(measure)
        self.state, self.ground = recover(store, self.figures)
        self.ground.offers, self.ground.weights = offers, weights
        self.reports = Reports()
        self.planning = Planning(call)
        self.solve: Callable[[Question], None] | None = None
        """Takes the questions of planners; their answers come as commands (`commands.solved`)."""
        self.snapshot_at = self.state.event_count + SNAPSHOT_EVERY
        for row, data in store.open_requests():
            self.book.restore(row, msgspec.json.decode(data, type=Request), self.state)
        self.limits.restore(self.book, self.state)
        self.next_job = int(store.meta("next_job") or 1)
        turn = Turn(max(now_s, self.state.now_s))
        with self.lock:
            if store.log_seq == 0:
                self._open(turn, opening)
            else:
                self._take_up(turn)
        self.found = FoundNodes(self.ground.text)
        if turn.has_writes:
            store.commit(turn.writes)

    def _open(self, turn: Turn, opening: tuple[ClusterChanged, PolicyChanged] | None) -> None:
        if opening is None:
            raise InputError("the store is new: a cluster and a policy are needed")
        changed, policy = opening
        self.step(turn, [*self.with_nodes(changed), policy], None)
        turn.notify("opened", f"cluster {self.ground.name}, policy {self.ground.policy}")

    def _take_up(self, turn: Turn) -> None:
        """Attach the planner to the state as it was before the restart."""
        fault = self.planning.take_up(self.state, self.ground.planner)
        if fault is not None:
            self._hand_over(turn, fault)
        # The limits of users and VCs may have been raised meanwhile, and solvers ended with the server.
        lost = "the server was restarted before there was an answer"
        unsolved = [Solved(asked.number, at, error=lost) for at, asked in outstanding(self.state.memory)]
        if events := [*self.limits.releases(), *unsolved]:
            self.step(turn, events, None)

    def start(self, engine: EngineCommands, *, is_new: bool = False) -> None:
        """Start with the engine: repeat what the state wants; the engine recognises by launch numbers what it has
        already done. `is_new`: this store may replace another one that the engine knows."""
        self.engine = engine
        self.epoch = max(int(self.store.meta("epoch") or 0), engine.last_epoch()) + 1
        store = self.store.own_id()
        self.store.commit(Writes(meta={"epoch": str(self.epoch), "store": store}))
        engine.adopt(self.epoch, self.state.now_s, wanted(self.state, store, is_new=is_new))

    # Time -------------------------------------------------------------------------------------------------------

    @property
    def wake_s(self) -> float:
        """When a turn is needed although no command or report comes."""
        return math.inf if self._is_looking else self.state.next_timer_s

    def _take_due(self, turn: Turn) -> list[Event]:
        due = self.state.due(turn.at_s)
        jobs = [self.state.jobs[timer.job_id] for timer in due if timer.kind is BACK_OFF]
        # A job whose back-off has ended may have to wait for a limit next.
        held = [event for job in jobs if isinstance(event := self.limits.release(job), JobHeld)]
        return [*held, TimerDue(due)] if due else []

    # The turn ---------------------------------------------------------------------------------------------------

    def turn(self, commands: list[Command], reports: list[Report], now_s: float, *, stepped_s: float = 0.0) -> None:
        """`stepped_s`: by how much the clock was set since the last turn, without time having passed."""
        for report in reports:
            if isinstance(report, Fenced):
                raise StaleEpoch(self.epoch, report.epoch)
        turn = Turn(max(now_s, self.state.now_s))
        began_s = time.perf_counter()
        with self.lock:
            actions: list[Action | Cluster] = []
            if stepped_s:
                self.reports = Reports()  # they count from other times now
                actions += self.step(turn, [ClockStepped(stepped_s)], None)
            actions += self._decide(turn, commands, reports)
        decided_s = time.perf_counter()
        if turn.has_writes:
            self.store.commit(turn.writes)
        self.turns += 1
        self.decide_s += decided_s - began_s
        self.commit_s += time.perf_counter() - decided_s
        self._after(turn, actions)
        for report in reports:
            if isinstance(report, Exited | LaunchFailed) and self.engine is not None:
                self.engine.settle(self.epoch, report.job_id, report.launch)

    def _decide(self, turn: Turn, commands: list[Command], reports: list[Report]) -> list[Action | Cluster]:
        """The actions for the engine; with a new cluster, the node numbers are those of that one."""
        received = [found for report in reports if (found := receive(self, turn.at_s, report)) is not None]
        for each in received:
            turn.events += each.events
        stop_overruns(self, turn, reports)
        turn.events += self._refresh(turn, self._launching(turn, reports))
        actions: list[Action | Cluster] = []
        if nodes := self.found.changes(self, turn, reports):
            actions += self._take_in(turn, received)  # first what has ended
            for events in nodes:
                actions += self._change(turn, events)
        if Looked() in reports:
            # Everything that had ended when the timers became due is known now, and comes first.
            self._is_looking = False
            if turn.events and self.state.next_timer_s <= turn.at_s:
                actions += self._take_in(turn, received)
            turn.events += self._take_due(turn)
        for command in commands:
            actions += self._prepare(turn, command, received)
        actions += self._take_in(turn, received)
        if self.state.health.changes and (ready := changes_due(self.state)):
            actions += self._change(turn, [*ready])
        for events in self.found.catch_up(self, turn, reports):
            actions += self._change(turn, events)
        if len(self.state.jobs) - len(self.book.by_member) >= 2 * ENDED_KEPT:
            actions += self.step(turn, [JobsForgotten(self._ended()[:-ENDED_KEPT])], None)
        return actions

    def _launching(self, turn: Turn, reports: list[Report]) -> set[str]:
        """Note what launches wait for. Returns the jobs for which that is news."""
        waiting = [report for report in reports if isinstance(report, Launching)]
        return {
            report.job_id
            for report in waiting
            if (record := self.book.of(report.job_id)) is not None
            and notify_launching(turn, record, self.state.jobs[report.job_id], report)
        }

    def _ended(self) -> list[str]:
        """Jobs of the core whose owners' jobs have ended, as they were submitted."""
        return [name for name in self.state.jobs if name not in self.book.by_member]

    def _prepare(self, turn: Turn, command: Command, received: list[Received]) -> list[Action | Cluster]:
        """Check a command. If it depends on earlier commands of the turn, these are applied first."""
        actions: list[Action | Cluster] = []
        count = len(turn.events)
        try:
            try:
                answer = command.prepare(self, turn)
            except NotYet:
                actions += self._take_in(turn, received)
                count = 0
                answer = command.prepare(self, turn)
        # an error of the caller, or a bug: nothing was added to the turn, the others continue
        except Exception as error:
            command.future.set_exception(error)
            return actions
        turn.answers.append((command.future, answer))
        asked = (self.book.of(name) for event in turn.events[count:] if (name := job_of(event)))
        turn.touched |= {record.id for record in asked if record is not None}
        for events in turn.take_changes():
            actions += self._change(turn, events)
        return actions

    def with_nodes(self, event: ClusterChanged) -> list[Event]:
        """A new cluster as events: the changes of each node, then the rest of the file."""
        cluster = self.ground.after(event)[1]
        assert cluster is not None
        return [*differences(self.state.cluster, cluster), event]

    def _change(self, turn: Turn, events: list[Event]) -> list[Action | Cluster]:
        """Make a separate step for changes that concern more than jobs."""
        following = self.step(turn, events, None)
        has_nodes = any(isinstance(event, Membership) for event in events)
        return [self.state.cluster.blank(), *following] if has_nodes else [*following]

    def _take_in(self, turn: Turn, received: list[Received]) -> list[Action]:
        """A step with everything collected in this turn."""
        actions: list[Action] = []
        if self.planning.fault is not None:
            actions += self._hand_over(turn, self.planning.fault)
        events = turn.take_events()
        return actions + self.step(turn, events, received) if events else actions

    def _after(self, turn: Turn, actions: list[Action | Cluster]) -> None:
        """After the write: execute the actions and answer."""
        assert self.engine is not None
        for act in turn.then:
            act(self.engine, self.epoch)
        self._execute(turn.at_s, actions)
        if self.state.next_timer_s <= turn.at_s and not self._is_looking and self.engine is not None:
            self._is_looking = True
            self.engine.look({timer.job_id for timer in self.state.due(turn.at_s) if timer.job_id in self.state.jobs})
        self.pass_questions()
        for future, answer in turn.answers:
            future.set_result(answer)
        changed = [*turn.writes.jobs, *(row.seq for row, _ in turn.writes.new_jobs)]
        if turn.writes.notices or changed:
            add_names(turn.writes, self.book.records)
            for listener in self.listeners:
                listener(turn.writes.notices, changed)
        if self.state.event_count >= self.snapshot_at:
            self.save_snapshot()

    def pass_questions(self) -> None:
        """What planners asked is in the log: now it may be solved."""
        if self.solve is not None:
            for question in self.planning.take_questions():
                self.solve(question)

    def _execute(self, at_s: float, actions: list[Action | Cluster]) -> None:
        engine = self.engine
        assert engine is not None
        following: list[Action] = []
        for each in actions:
            if isinstance(each, Cluster):
                engine.execute(self.epoch, at_s, following)
                engine.use_cluster(each)
                following = []
            else:
                following.append(each)
        if following:
            engine.execute(self.epoch, at_s, following)

    def save_snapshot(self) -> None:
        self.snapshot_at = self.state.event_count + SNAPSHOT_EVERY
        ground = self.ground
        state = dump(self.state)
        self.store.save_snapshot(
            Snapshot(self.store.log_seq, ground.name, ground.text, ground.policy, ground.files, state)
        )

    def step(self, turn: Turn, events: list[Event], received: list[Received] | None) -> list[Action]:
        """Call the planner and note the consequences for the owners of jobs; repeat if more follows from that. The lock
        is held."""
        before = {
            event.job_id: self.state.jobs[event.job_id].held_gpus for event in events if isinstance(event, TasksMoved)
        }
        self.figures.foresee(self.state.cluster, events, self.ground.follow(events))
        self.state.advance(turn.at_s, events)
        made, fault = self._plan(turn.at_s, events)
        plans, bad = commit_all(self.state, made)
        if bad is not None:
            fault = self._fault_of(bad)
        actions = named(self.state.send(), self.state.cluster)
        turn.writes.log.append((turn.at_s, encode(Entry(turn.at_s, events, plans))))
        self._notify(turn, events, received or [], before, actions, preemptors(plans))
        self._notify_rejected(turn, plans)
        changed = changed_by(events, plans)
        for group_id in ended_by(events, plans):
            changed.update(self.book.ended_with(self.state, group_id))
        more = self._refresh(turn, changed)
        if self.state.groups:
            more += judged(self, turn, events)
        if fault is not None:
            actions += self._hand_over(turn, fault)
        return actions + self.step(turn, more, None) if more else actions

    def _plan(self, at_s: float, events: list[Event]) -> tuple[list[PlanRecord], Fault | None]:
        """The planner works on a copy, so readers of the state need not wait for it."""
        begins = any(isinstance(event, PolicyChanged | PolicyFailed | ClusterChanged) for event in events)
        with self.lock.lent():
            if begins:
                return self.planning.begin(self.state, self.ground.planner)
            return self.planning.step(at_s, events)

    # Policies that fail -----------------------------------------------------------------------------------------

    def _fault_of(self, bad: BadPlan) -> Fault:
        job = self.state.jobs.get(bad.job_id)
        return Fault(str(bad), job.spec.vc if job is not None else "")

    def _hand_over(self, turn: Turn, fault: Fault) -> list[Action]:
        """Another policy decides from now on: in one VC, if that has its own, otherwise everywhere."""
        own = self.ground.own_policy(fault.vc)
        failed = own or self.ground.policy
        event = PolicyFailed(failed, fault.error, self._successor(failed, bool(own)), fault.vc if own else "")
        self.policy_failures += 1
        turn.notify("policy-failed", sentence(event))
        return self.step(turn, [event], None)

    def _successor(self, failed: str, is_of_vc: bool) -> str:
        """The previous policy (in a VC: that of the other VCs), else fifo, else a planner that decides nothing."""
        if failed == LAST_RESORT:
            return NO_POLICY
        trusted = self.ground.policy if is_of_vc else self.state.previous_policy
        return LAST_RESORT if trusted in ("", failed, NO_POLICY) else trusted

    def rehearse(self, event: PolicyChanged) -> None:
        """Raises if this policy fails at once on the present state; nothing is changed."""
        with self.lock.lent():
            state = fork(self.state)
            state.advance(state.now_s, [event])
            made, fault = Planning(self.planning.call).begin(state, self.ground.after(event)[0].planner)
            bad = fault.error if fault is not None else commit_all(state, made)[1]
        if bad:
            failed = f"policy {short(event.policy)} failed ({bad})"
            stays = f"the policy {short(self.ground.policy)} stays in charge"
            raise InputError(f"{failed}; {stays}", hint="correct it, and try again")

    def _refresh(self, turn: Turn, changed: set[str]) -> list[Event]:
        """Update the jobs of owners. Returns the jobs that are released by that."""
        for record, names in self.lock.in_pieces(self._by_owner(changed)):
            before = record.row.reason
            if (
                self.book.refresh(record, self.state, self.lock.in_pieces(names))
                and record.row.seq not in turn.writes.jobs
            ):
                turn.writes.jobs[record.row.seq] = record.row
            is_over = record.row.finish_s is not None
            if record.row.reason != before:
                notify_stopped_by_group(turn, self.state, record)
                notify_needs_failed(turn, self.state, record)
            self.limits.recount(record, [self.state.jobs[each] for each in (record.members if is_over else names)])
        return self.limits.releases()

    def _by_owner(self, changed: set[str]) -> list[tuple[Record, list[str]]]:
        """Jobs with those of their members that changed, including jobs that may have ended because a group or a needed
        job has ended."""
        names = dict.fromkeys(sorted(changed))
        following = list(names)
        found: dict[str, tuple[Record, list[str]]] = {}
        for name in following:
            job = self.state.jobs.get(name)
            record = self.book.of(name)
            if record is not None and job is not None:
                found.setdefault(record.id, (record, []))[1].append(name)
            if job is not None and job.state.is_final:
                more = self.book.needed_by.pop(name, [])
                if job.spec.group is not None:
                    more += self.book.ended_with(self.state, job.spec.group.id)
                following += [other for other in dict.fromkeys(more) if other not in names]
                names |= dict.fromkeys(more)
        return list(found.values())

    def _notify(
        self,
        turn: Turn,
        events: list[Event],
        received: list[Received],
        before: dict[str, float],
        actions: list[Action],
        preemptors: dict[str, str],
    ) -> None:
        of_launch = {(each.job_id, each.launch): each for each in received}
        for event in self.lock.in_pieces(events):
            record = self.book.of(event.job_id) if hasattr(event, "job_id") else None
            if record is None:
                continue
            job = self.state.jobs[event.job_id]  # type: ignore[union-attr]  # `book.of` found a record, so it has a job
            if isinstance(event, TasksPlaced):
                note_placed(self.state, record, job, event)
            elif isinstance(event, TasksStarted):
                notify_started(turn, record, job, event)
            elif isinstance(event, TasksMoved):
                notify_moved(turn, self.state, record, job, event, before[job.id])
            elif isinstance(event, TasksExited) and (each := of_launch.get((job.id, event.launch))) is not None:
                notify_exited(turn, record, job, event, each)
        for action in self.lock.in_pieces(actions):
            record = self.book.of(action.job_id)
            if record is not None:
                # Actions with a notice: launches, stops, moves.
                notify_action(turn, self.state, record, action, preemptors)  # type: ignore[arg-type]

    def _notify_rejected(self, turn: Turn, plans: list[PlanRecord]) -> None:
        for job_id in (job_id for plan in plans for job_id, _ in plan.rejects):
            record = self.book.of(job_id)
            if record is not None:
                notify_rejected(turn, record, self.state.jobs[job_id])

    def forget(self, before_s: float) -> list[str]:
        """Delete everything about jobs that ended before that. Returns their ids."""
        gone = set(self.store.forget(before_s))
        names = [name for name in self._ended() if owner_of(self.state, name) in gone]
        if names:
            turn = Turn(self.state.now_s)
            with self.lock:
                self.step(turn, [JobsForgotten(names)], None)
            self.store.commit(turn.writes)
        return sorted(gone)

    def longest_answer_s(self) -> float:
        """The longest time of a decision so far."""
        return self.planning.longest_s

    def jobs_by_state(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for job in self.state.jobs.values():
            state = shown_state(job)
            counts[state] = counts.get(state, 0) + 1
        return counts


def answer_all(commands: list[Command], error: Exception) -> None:
    for command in commands:
        if not command.future.done():
            command.future.set_exception(error)
