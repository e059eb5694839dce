"""The engine that runs real processes on this machine.

One thread does everything, in order: requests (a queue), notifications of shims (a fifo), and a periodic check of
everything that runs, for lost notifications and killed shims. The work itself is in `runs.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.model import GroupRef
from skep.core.ports import Capability, StaleEpoch, Wanted
from skep.core.reports import Fenced, Looked, Report
from skep.engines.local.accounts import Accounts
from skep.engines.local.begin import Beginner
from skep.engines.local.cgroups import Cgroups, find_bases
from skep.engines.local.containers import podman
from skep.engines.local.disk import write_whole
from skep.engines.local.folder import Folder
from skep.engines.local.job_files import JobFiles
from skep.engines.local.runs import Runs
from skep.engines.local.start import forks
from skep.engines.local.upkeep import DiskRules, RunningJob, Upkeep
from skep.engines.local.uses import Scope
from skep.files.untrusted import read_small, reserve
from skep.jobs.request import UNLIMITED, LimitRules, Request

LOOK_S = 1.0
"""The time between two checks of everything that runs."""
RING_MAX = 4096
"""The longest line in the fifo; longer ones cannot be the name of a task."""

log = logging.getLogger(__name__)


class LocalEngine(JobFiles):
    """Reports come from the engine's own thread, in the order in which things happened."""

    name = "local"

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        request_of: Callable[[str], tuple[Request, GroupRef | None]],
        tell: Callable[[list[Report]], None],
        accounts: Accounts | None = None,
        limits: LimitRules = UNLIMITED,
        disk: DiskRules | None = None,
        is_open: Callable[[str], bool] = lambda job_id: True,
    ) -> None:
        """`request_of` returns the request of a job of the core and, for a member of an incremental job, which member
        it is. `is_open` is true for a job that may still be started; the files of others are packed."""
        self.capabilities = local_capabilities()
        accounts = accounts or Accounts()
        self.folder = Folder(folder.absolute(), accounts.job_files if accounts.differ else None)
        self.folder.prepare()
        reserve.fill()
        self.groups = Cgroups(find_bases(), self.folder.root)
        if problem := self.groups.problem():
            log.warning("%s", problem)
        self.fence = Fence(self.folder.epoch)
        self._epoch = 0
        """The epoch of the server that the engine acts for; 0 before `adopt`."""
        self.tell = tell
        self.is_open = is_open
        self.runs = Runs(self.folder, cluster, Beginner(self.folder, self.groups, accounts, limits), request_of)
        self._todo: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._bell = os.open(self.folder.reports, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rung = b""
        self._untold: list[Report] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_open = True
        self._removal: threading.Thread | None = None
        self.upkeep = Upkeep(self.folder, self, limits, disk)
        self._remove_forgotten()
        self._thread = threading.Thread(target=self._work, name="skep-local-engine", daemon=True)
        self._thread.start()
        self.upkeep.start()

    # Commands; any thread.

    def last_epoch(self) -> int:
        return self.fence.epoch

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        self.fence.check(epoch)
        self._epoch = epoch  # before it can be read from the file
        self.fence.take(epoch)
        self._ask(self._take_up, epoch, wanted)
        paths = {self.folder.launch(job_id, launch) for job_id, launch in wanted.known}
        threading.Thread(target=self._find_strays, args=(paths,), name="skep-local-sweep", daemon=True).start()

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        self.fence.check(epoch)
        self._ask(self._act, actions)

    def lose_node(self, epoch: int, node: str) -> None:
        self.fence.check(epoch)
        self._ask(self.runs.lose, node)

    def restore_node(self, epoch: int, node: str) -> None:
        self.fence.check(epoch)
        self._ask(self.runs.restore, node)

    def use_cluster(self, cluster: Cluster) -> None:
        self._ask(self.runs.use_cluster, cluster)

    def look(self, job_ids: Collection[str]) -> None:
        self._ask(self._look_now, job_ids)

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        """Nothing to do: the files of a launch stay until its job is forgotten."""

    def forget(self, job_id: str) -> None:
        if job_id not in self.runs.by_job:
            self.folder.put_aside(job_id)
            self.upkeep.forget(job_id)
            self._remove_forgotten()

    def problems(self) -> list[str]:
        return [f"{self.runs.shortage}: no job is started"] if self.runs.shortage else []

    def make_room(self) -> bool:
        return self.upkeep.make_room()

    def disk_used(self) -> Mapping[tuple[str, str], int]:
        return self.upkeep.uses.totals.copy()

    def close(self) -> None:
        self.upkeep.close()
        self._ask(setattr, self, "_is_open", False)
        self._thread.join()
        os.close(self._bell)
        os.close(self._wake)

    def _remove_forgotten(self) -> None:
        """In a separate thread: a job may leave millions of files."""
        if self._removal is None or not self._removal.is_alive():
            self._removal = threading.Thread(target=self.folder.remove_aside, name="skep-local-remove", daemon=True)
            self._removal.start()

    # For the upkeep

    def running(self) -> list[RunningJob]:
        return [RunningJob(run.job_id, not run.was_found) for run in list(self.runs.by_job.values())]

    def take_ended(self) -> list[str]:
        return [self.runs.ended.popleft() for _ in range(len(self.runs.ended))]

    def whose(self, job_id: str) -> tuple[str, str] | None:
        try:
            request, _ = self.runs.request_of(job_id)
        except Exception:  # It is not in the store: deleted, or of a later time than a restored backup.
            return None
        return request.user, request.vc

    def end_job(self, job_id: str, reason: str, *, at_once: bool) -> None:
        self._ask(self.runs.end_for_disk, job_id, reason, at_once)

    def end_writer(self, reason: str) -> None:
        self._ask(self.runs.end_writer, reason)

    def set_shortage(self, reason: str) -> None:
        self.runs.shortage = reason

    def set_full(self, full: dict[Scope, str]) -> None:
        self.runs.full = full

    # The thread

    def _ask(self, what: Callable[..., None], *args: Any) -> None:
        self._todo.put((what, args))
        os.eventfd_write(self._wake, 1)

    def _work(self) -> None:
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        look_at = 0.0
        self._try(forks.begin)
        while self._is_open:
            ready = {fd for fd, _ in poller.poll(self._wait_ms(look_at))}
            if self._wake in ready:
                os.eventfd_read(self._wake)
                self._do_all()
            if self._bell in ready:
                self._try(self.runs.answer, self._rings())
            if time.monotonic() >= look_at:
                if self._is_fenced():
                    self._is_open = False
                else:
                    self._try(self.runs.check)
                look_at = time.monotonic() + LOOK_S
            self._try(self.runs.share)
            self._deliver()

    def _wait_ms(self, look_at: float) -> float | None:
        is_idle = not (self.runs.by_job or self.runs.strays or self.runs.unread or self.runs.delayed or self._untold)
        return None if is_idle else max(look_at - time.monotonic(), 0.0) * 1000 + 1

    def _deliver(self) -> None:
        """Reports that could not be delivered are kept, and delivered before newer ones."""
        self._untold += self.runs.take_reports()
        if self._untold:
            try:
                self.tell(self._untold)
                self._untold = []
            except Exception:
                log.exception(
                    "the server did not read %d reports; they are delivered at the next check",
                    len(self._untold),
                )

    def _do_all(self) -> None:
        while True:
            try:
                what, args = self._todo.get_nowait()
            except Empty:
                return
            self._try(what, *args)

    def _take_up(self, epoch: int, wanted: Wanted) -> None:
        self.runs.epoch = epoch
        for node in sorted(wanted.lost):
            self._try(self.runs.lose, node)
        self._act(wanted.actions)

    def _is_fenced(self) -> bool:
        """True if another server has taken over: then this engine does nothing any more."""
        newer = self.fence.epoch
        if not self._epoch or newer <= self._epoch:
            return False
        log.error("another server has taken over this folder (epoch %d, here %d)", newer, self._epoch)
        self._untold.append(Fenced(newer))
        return True

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            self._try(self.runs.act, action)
        self.runs.settle()

    def _look_now(self, job_ids: Collection[str]) -> None:
        self._try(self.runs.answer, self._rings())
        self._try(self.runs.check_jobs, job_ids)
        self._untold += [*self.runs.take_reports(), Looked()]

    def _rings(self) -> list[str]:
        """Since the last call. There may be none: a `look` reads them between the poll and us."""
        with contextlib.suppress(BlockingIOError):
            self._rung += os.read(self._bell, 1 << 16)
        *lines, rest = self._rung.split(b"\n")
        self._rung = rest[-RING_MAX:]
        return [line.decode(errors="replace") for line in dict.fromkeys(lines)]

    def _try(self, what: Callable[..., None], *args: Any) -> None:
        """An error with one job must not stop the engine."""
        try:
            what(*args)
        except Exception as error:
            # What the machine refuses, such as disk space, it refuses again at every check: one line each is enough.
            is_bug = not isinstance(error, OSError)
            log.error("the local engine failed at one job and continues: %s: %s", args, error, exc_info=is_bug)

    def _find_strays(self, known: set[Path]) -> None:
        """In a separate thread: a long history has many folders, and launches should not wait for them."""
        paths = [path for path in self.folder.all_launches() if path not in known]
        while paths and self._is_open:
            paths = [path for path in paths if not self._is_seen_to(path)]
            if paths:
                time.sleep(LOOK_S)
        self.upkeep.may_pack = True

    def _is_seen_to(self, path: Path) -> bool:
        """False if it cannot be read now, which does not mean that nothing runs."""
        try:
            if not self.folder.is_over(path):
                self._ask(self.runs.kill_strays, [path])
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s cannot be read now: %s", path, error)
            return False
        return True


def local_capabilities() -> frozenset[Capability]:
    """Images need podman."""
    return frozenset(
        {
            *(Capability.CHECKPOINT, Capability.TUNE, Capability.SUSPEND, Capability.MIGRATE, Capability.RESIZE),
            *(Capability.SHARE, Capability.LIMIT, Capability.LOGS, Capability.PROGRESS, Capability.EXEC),
            *(Capability.EXACT_GPUS, *([Capability.IMAGES] if podman() else [])),
        }
    )


class Fence:
    """Which server may act on a data folder: the one with the latest epoch, an increasing number in a file.

    A server that was stopped or disconnected and returns finds that another has taken over. Shims read the file too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0

    @property
    def epoch(self) -> int:
        """The latest epoch; 0 if there is none. If the file cannot be read now, the latest one seen."""
        with contextlib.suppress(OSError):
            text = read_small(self.path, 20) or b""
            self._seen = max(self._seen, int(text) if text.isdigit() else 0)
        return self._seen

    def take(self, epoch: int) -> None:
        """Store a new epoch. It is durable when this returns."""
        self.check(epoch)
        write_whole(str(self.path), str(epoch), is_durable=True)

    def check(self, epoch: int) -> None:
        if epoch < (newer := self.epoch):
            raise StaleEpoch(epoch, newer)
