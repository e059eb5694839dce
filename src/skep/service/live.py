"""The live service: one thread that writes, and reads for all other threads.

Requests from many threads become commands in one queue. The writer takes all that are waiting, so that a busy server
commits many of them with one write to the disk.
"""

from __future__ import annotations

import functools
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from skep.clusters.read import read_text
from skep.core.errors import InputError
from skep.core.model import GroupRef
from skep.core.needs import Need
from skep.core.ports import Capability, Engine
from skep.core.reports import Report
from skep.core.weights import EQUAL, Weights
from skep.files.untrusted import Gone
from skep.jobs.alter import Alteration
from skep.jobs.core import to_core
from skep.jobs.request import UNLIMITED, LimitRules, Request
from skep.service import commands, searches
from skep.service.alter import alter
from skep.service.check import check_open_jobs, check_rows, damaged
from skep.service.clock import Clock
from skep.service.commands import Prepare
from skep.service.override import override
from skep.service.planning import Bounded
from skep.service.progress import Measure, nobody_measured
from skep.service.reads import Reads, as_event
from skep.service.recover import DAMAGE
from skep.service.sight import EVERYTHING, Sight
from skep.service.solvers import Solvers
from skep.service.store import Notice, Store
from skep.service.turn import Busy, Command
from skep.service.values import Json
from skep.service.writer import Writer, answer_all

BATCH_MAX = 2000
SLOW_S = 5.0
"""A policy that takes longer than this is a problem shown to admins."""
IDLE_S = 10.0
"""A wall clock that was set is noticed within this time."""
FORGET_EVERY_S = 3600.0
CHECKPOINT_EVERY_S = 1.0

log = logging.getLogger("skep")


class Live(Reads):
    """The operations of a running Skep. Writes return a future that is completed when they are durable."""

    engine: Engine

    def __init__(
        self,
        store: Store,
        make_engine: Callable[[Live], Engine],
        clock: Callable[[], float] | Clock,
        *,
        cluster: tuple[str, str] | None = None,
        policy: str | None = None,
        retention_s: float = 30 * 86400.0,
        on_fault: Callable[[Exception], None] = lambda error: None,
        limits: LimitRules = UNLIMITED,
        offers: frozenset[Need] = frozenset(Need),
        capabilities: frozenset[Capability] = frozenset(Capability),
        measure: Measure = nobody_measured,
        is_new: bool = False,
        weights: Weights = EQUAL,
    ) -> None:
        """`cluster` is (name, text). If the store already has a cluster and a policy, the given ones replace them.
        `is_new`: the store may replace another one that the engine knows."""
        self.clock = clock if isinstance(clock, Clock) else Clock(clock, clock)
        self.store = store
        self.retention_s = retention_s
        self.on_fault = on_fault
        self.fault: Exception | None = None
        self._inbox: queue.SimpleQueue[Command | list[Report] | None] = queue.SimpleQueue()
        opening = None
        if cluster is not None and store.log_seq == 0:
            made = commands.make_cluster(cluster[1], cluster[0])
            opening = (made, commands.make_policy(policy or "fifo", read_text(made.text, made.name)[0]))
        self.bounded = Bounded()
        make = functools.partial(
            Writer,
            opening=opening,
            limits=limits,
            call=self.bounded,
            offers=offers,
            capabilities=capabilities,
            measure=measure,
            weights=weights,
        )
        self.writer = open_writer(store, lambda: make(store, self.clock()))
        override(self.writer, cluster, policy, self.clock())
        self.lock = self.writer.lock
        self.writer.planning.on_fault = lambda: self._inbox.put([])
        self.engine = make_engine(self)
        # After a restored backup there may be files of jobs that it does not know: their numbers are in use.
        self.writer.next_job = max(self.writer.next_job, self.engine.last_job() + 1)
        store.make_room = self.engine.make_room
        self.writer.start(self.engine, is_new=is_new)
        self.solvers = Solvers(lambda event: self._inbox.put(Command(commands.solved(event), Future())))
        self.writer.solve = self.solvers.ask
        self.writer.pass_questions()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="writer", daemon=True),
            threading.Thread(target=self._tidy, name="tidy", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # The writer's thread ----------------------------------------------------------------------------------------

    def tell(self, reports: list[Report]) -> None:
        """Called by engines with their reports."""
        self._inbox.put(reports)

    # The result of `prepare`.
    def _ask(self, prepare: Prepare) -> Future[Any]:
        future: Future[Any] = Future()  # as above
        if self.fault is not None:
            future.set_exception(Busy(f"the server cannot write any more: {self.fault}"))
        else:
            self._inbox.put(Command(prepare, future))
        return future

    def _run(self) -> None:
        forget_at_s = self.clock() + FORGET_EVERY_S
        while (items := self._take()) is not None:
            asked = [item for item in items if isinstance(item, Command)]
            try:
                self.store.anchor.check()
                reports = [report for item in items if isinstance(item, list) for report in item]
                self._turn(asked, reports)
                if self.clock() >= forget_at_s:
                    forget_at_s = self.clock() + FORGET_EVERY_S
                    self._forget()
            except Exception as error:
                self._fail(error, asked)
                return

    def _turn(self, asked: list[Command], reports: list[Report]) -> None:
        tick = self.clock.tick()
        for text in tick.texts:
            log.warning("%s", text)
            asked.append(Command(saying("clock", text), Future()))
        self.store.mark = msgspec.json.encode(self.clock.mark()).decode()
        self.writer.turn(asked, reports, tick.at_s, stepped_s=tick.stepped_s)

    def _tidy(self) -> None:
        """Disk work that must not delay the writer."""
        seen = 0
        while not self._closing.wait(CHECKPOINT_EVERY_S):
            self._look_for_store()
            if self.store.log_seq != seen:
                seen = self.store.log_seq
                try:
                    self.store.checkpoint()
                except sqlite3.Error as error:  # committed data is safe in the journal
                    log.warning("the journal of the store grows: %s", error)

    def _look_for_store(self) -> None:
        """Check regularly that the files still exist, also while there are no requests."""
        try:
            self.store.anchor.check()
        except Gone:
            self._inbox.put([])  # the writer notices too, and stops

    def _take(self) -> list[Command | list[Report]] | None:
        """Everything that waits; empty when a timer is due; None at the end."""
        wait_s = min(max(self.writer.wake_s - self.clock(), 0.0), IDLE_S)
        items: list[Command | list[Report]] = []
        try:
            item = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            while item is not None:
                items.append(item)
                if len(items) >= BATCH_MAX:
                    return items
                item = self._inbox.get_nowait()
        except queue.Empty:
            return items
        self._inbox.put(None)
        return items or None

    def _fail(self, error: Exception, asked: list[Command]) -> None:
        """The memory is ahead of the disk: stop, and let the next start continue from what is written."""
        log.error("the server stops, its jobs run on: %s", error, exc_info=not isinstance(error, OSError | Gone))
        self.fault = error
        while not self._inbox.empty():
            item = self._inbox.get()
            asked += [item] if isinstance(item, Command) else []
        answer_all(asked, Busy(f"the server cannot write any more: {error}"))
        self.on_fault(error)

    def _forget(self) -> None:
        gone = self.writer.forget(self.clock.old_before(self.retention_s))
        for job_id in gone:
            self.engine.forget(job_id)

    def request_of(self, core_id: str) -> tuple[Request, GroupRef | None]:
        """For engines: the request of a job and, for a member, its task."""
        request = self._request_of(core_id)
        if request.gang:
            return request, None
        job = self.writer.state.jobs.get(core_id)
        specs = to_core(request, self.store.owner(core_id)[0]) if job is None else [job.spec]
        return request, next(spec.group for spec in specs if spec.id == core_id)

    def is_open(self, core_id: str) -> bool:
        """For engines: true if the job has not ended."""
        return self.writer.book.of(core_id) is not None

    def _request_of(self, core_id: str) -> Request:
        record = self.writer.book.of(core_id)
        if record is not None:
            return record.request
        kept = self.store.job(int(self.store.owner(core_id)[0]))
        assert kept is not None
        return msgspec.json.decode(kept[1], type=Request)

    def close(self, *, snapshot: bool = True) -> None:
        """Stop the service. Jobs run on; the next start adopts them."""
        self._inbox.put(None)
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self.solvers.close()
        self.engine.close()
        self.bounded.close()
        if snapshot and self.fault is None:
            try:
                self.writer.save_snapshot()
            except sqlite3.Error as error:  # the log is complete; the next start only takes a little longer
                log.warning("no snapshot was written: %s", error)
        self.store.close()

    # Writes -----------------------------------------------------------------------------------------------------

    def submit(self, requests: list[Request], who: str, key: str = "", sight: Sight = EVERYTHING) -> Future[list[str]]:
        return self._ask(commands.submit(requests, who, key, sight))

    def stop(self, job_id: str, who: str, reason: str = "") -> Future[None]:
        return self._ask(commands.stop(job_id, who, reason))

    def stop_search(self, group_id: str, who: str) -> Future[None]:
        return self._ask(searches.stop(group_id, who))

    def change(
        self,
        job_id: str,
        who: str,
        *,
        priority: int | None = None,
        is_held: bool | None = None,
        tags: tuple[str, ...] | None = None,
    ) -> Future[None]:
        return self._ask(commands.change(job_id, who, priority, is_held, tags))

    def alter(self, job_id: str, wanted: Alteration, who: str) -> Future[None]:
        return self._ask(alter(job_id, wanted, who))

    def use_policy(self, spec: str, who: str, files: Mapping[str, str] | None = None) -> Future[None]:
        return self._ask(commands.use_policy(spec, who, files))

    def apply_cluster(self, text: str, name: str, who: str) -> Future[None]:
        return self._ask(commands.apply_cluster(text, name, who))

    def preview_cluster(self, text: str, name: str) -> list[str]:
        with self.lock:
            return commands.changes_of(self.writer, text, name)

    def set_node(self, node: str, state: str, who: str) -> Future[None]:
        """`drained`, `lost` (a virtual node, as if its machine had died) or `up`."""
        return self._ask(commands.set_node(node, state, who))

    def note(self, kind: str, text: str, who: str = "") -> Future[None]:
        """An event of the server itself."""
        return self._ask(saying(kind, text, who))

    def problems(self) -> list[str]:
        """Problems that an admin should know."""
        found = [problem for problem in (self.clock.problem,) if problem] + self.engine.problems()
        if self.bounded.waits_s > SLOW_S:
            found.append(f"the policy has been deciding for {self.bounded.waits_s:.0f} s, and all commands wait for it")
        return found + self.policy_problems()

    def subscribe(self, listener: Callable[[list[Json], list[str]], object]) -> Callable[[], None]:
        """Register a function that the writer's thread calls with new notices, and with the ids of new or changed jobs,
        once they are durable. Returns a function that ends this."""

        def notify(notices: list[Notice], changed: list[int]) -> None:
            listener([as_event(each) for each in notices], [str(seq) for seq in changed])

        self.writer.listeners.append(notify)
        return lambda: self.writer.listeners.remove(notify)

    def backup(self, path: Path) -> None:
        self.store.backup(path)


def saying(kind: str, text: str, who: str = "") -> Prepare:
    return lambda writer, turn: turn.notify(kind, text, None, who)


def open_writer(store: Store, make: Callable[[], Writer]) -> Writer:
    """Open a store after checking it, so that damage is reported at the start and not by a later request."""
    if not check_rows(store):
        log.warning("%s is large: its oldest rows were not checked", store.path)
    try:
        writer = make()
    except InputError:
        raise
    except DAMAGE as error:
        raise damaged(store, str(error) or type(error).__name__) from error
    check_open_jobs(store, writer.state, writer.book)
    return writer
