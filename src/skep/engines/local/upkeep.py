"""Keeps the disk usable: measures the folders of jobs, ends jobs that take too much, keeps a reserve for the store.

A thread of its own looks once a second. It measures at most `ENTRIES` files at a time, three quarters of them in the
folders of running jobs, which have their turns. So with F files in these an overrun is noticed after at most 1 s +
F / 15,000 s, and the cost of a second does not grow with F. Folders of ended jobs are measured after the end, after a
start of the server, and once an hour. The free space of the disk is one call, every second. If it is below the reserve,
the job that grew most is killed. The ballast, files on that disk, is deleted last: then the store and the shims can
write although the disk is full.

It also packs the files of ended jobs (`packed.py`).
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from skep.engines.local.folder import Folder, safe_name
from skep.engines.local.uses import PERIOD_S, JobUse, Scope, Uses, shown
from skep.engines.local.walk import Walk
from skep.jobs.request import UNLIMITED, LimitRules

LOOK_S = 1.0
ENTRIES = 20_000
FOR_RUNNING = ENTRIES * 3 // 4
LOOKED_UP = 1000
"""Ended jobs whose owners are read in a second."""
AGAIN_S, AGAIN_FULL_S = 3600.0, 60.0
"""When the folders of ended jobs are measured again; the second, if a quota is used up."""
URGENT_S = 2.0
"""How long to measure when the disk is nearly full."""
WRITER_S = 5.0
"""The time between two searches for a job that fills the disk with files elsewhere."""
PACK_S = 60.0
"""How long after its end a job is packed: its log is read most right after the end."""
KILL_S = 0.5
HELP_S = 10.0
"""How long a store without room waits after a job was ended or the ballast released: processes need time to end."""
BALLAST = "ballast"
BALLAST_BYTES = 64 << 20
BALLAST_SHARE = 0.01
BALLAST_FILES = 256
FILES_SHARE = 0.01
"""Of the files that the disk can have, this part is reserved too."""

log = logging.getLogger(__name__)


class DiskRules(msgspec.Struct, frozen=True):
    all_bytes: int | None = None
    """The most that the files of all jobs may take."""
    reserve_bytes: int = 0
    """What stays free of the disk that has the store."""


class RunningJob(NamedTuple):
    job_id: str
    is_new: bool
    """False if it ran before this server started."""


class Jobs(Protocol):
    """What the upkeep asks of the engine."""

    def running(self) -> list[RunningJob]: ...

    def take_ended(self) -> list[str]:
        """Jobs whose launch has ended since the last call."""

    def whose(self, job_id: str) -> tuple[str, str] | None:
        """The user and the VC of a job; None if it is not known any more."""

    def is_open(self, job_id: str) -> bool:
        """True if the job may still be started again."""

    def end_job(self, job_id: str, reason: str, *, at_once: bool) -> None: ...

    def end_writer(self, reason: str) -> None:
        """End the job whose processes write most, if they write."""

    def set_shortage(self, reason: str) -> None:
        """Start no job as long as there is a reason."""

    def set_full(self, full: dict[Scope, str]) -> None:
        """Start no job of these users and VCs, for these reasons."""


class Upkeep:
    def __init__(
        self, folder: Folder, jobs: Jobs, limits: LimitRules = UNLIMITED, rules: DiskRules | None = None
    ) -> None:
        self.folder = folder
        self.jobs = jobs
        self.rules = rules or DiskRules()
        self.uses = Uses(limits, self.rules.all_bytes)
        self.ballast = folder.root / BALLAST
        self.may_pack = False
        """False until nothing is left to find of earlier servers."""
        self._running = Measuring(self.uses, self._walk)
        self._ended = Measuring(self.uses, self._walk)
        self._unknown: deque[str] = deque()
        """Jobs that have ended, or perhaps have, and whose owners are still to be looked up."""
        self._to_pack: deque[tuple[float, str]] = deque()
        """Jobs that do not run any more, and when they can be packed."""
        self._period_at_s = time.monotonic() + PERIOD_S
        self._again_at_s = self._writer_at_s = 0.0
        self._helped_at_s = -HELP_S
        """When a job was last ended, or the ballast released, for want of room."""
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="skep-local-upkeep", daemon=True),
            threading.Thread(target=self._pack_all, name="skep-local-pack", daemon=True),
        ]

    def start(self) -> None:
        self._keep_ballast()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._is_closed.set()
        for thread in self._threads:
            thread.join()

    def forget(self, job_id: str) -> None:
        with self._lock:
            self.uses.forget(job_id)

    def _work(self) -> None:
        while not self._is_closed.wait(LOOK_S):
            try:
                with self._lock:
                    self.look()
            except Exception as error:  # it goes on: the next look may succeed
                log.error("the disk cannot be looked after now: %s", error, exc_info=not isinstance(error, OSError))

    def look(self) -> None:
        self._follow()
        left = self._running.go(FOR_RUNNING)
        self._look_up()
        self._ended.go(left + ENTRIES - FOR_RUNNING)
        for each in self.uses.overruns():
            log.warning("job %s is ended: %s", each.job_id, each.reason)
            self._end(each.job_id, each.reason, at_once=False)
        full = self.uses.full()
        self.jobs.set_full(full)
        if full:  # an admin may delete files
            self._again_at_s = min(self._again_at_s, time.monotonic() + AGAIN_FULL_S)
        self._look_at_free()

    # Measuring

    def _walk(self, use: JobUse) -> Walk:
        walk = Walk([self.folder.job(use.job_id), *self.folder.elsewhere(use.job_id)])
        walk.bytes = self.folder.packed.size(safe_name(use.job_id))
        return walk

    def _follow(self) -> None:
        """Which jobs run, and how long ago."""
        running = {each.job_id: each for each in self.jobs.running()}
        for use in [use for use in self.uses.running.values() if use.job_id not in running]:
            self.uses.end(use)
        for job_id in dict.fromkeys(self.jobs.take_ended()):
            self._unknown.append(job_id)
            self._to_pack.append((time.monotonic() + PACK_S, job_id))
        for job_id, each in running.items():
            if job_id not in self.uses.running and (whose := self.jobs.whose(job_id)) is not None:
                use = self.uses.add(job_id, *whose)
                self.uses.start(use, is_new=each.is_new)
                self._running.waiting.append(use)
        now_s = time.monotonic()
        if now_s >= self._period_at_s:
            self._period_at_s = now_s + PERIOD_S
            self.uses.begin_period()
        if now_s >= self._again_at_s:
            self._again_at_s = now_s + AGAIN_S
            all_jobs = self.folder.all_jobs()
            self._unknown = deque(all_jobs)
            self._to_pack += [(now_s, job_id) for job_id in all_jobs if self.folder.has_folder(job_id)]

    def _look_up(self) -> None:
        """Measure these once."""
        for _ in range(min(len(self._unknown), LOOKED_UP)):
            job_id = self._unknown.popleft()
            if job_id not in self.uses.running and (whose := self.jobs.whose(job_id)) is not None:
                self._ended.waiting.append(self.uses.add(job_id, *whose))

    # Packing, in a thread of its own: it waits for the disk

    def _pack_all(self) -> None:
        while not self._is_closed.wait(LOOK_S):
            while self.may_pack and self._to_pack and self._to_pack[0][0] <= time.monotonic():
                _, job_id = self._to_pack.popleft()
                try:
                    self._pack(job_id)
                except Exception as error:  # the next look at all jobs tries again
                    log.error("job %s cannot be packed: %s", job_id, error, exc_info=not isinstance(error, OSError))
                if self._is_closed.is_set():
                    return

    def _pack(self, job_id: str) -> None:
        """If it has ended for good."""
        if not self.jobs.is_open(job_id):
            self.folder.pack(job_id)
            self._unknown.append(job_id)  # it is to be measured again

    # The free space

    def _look_at_free(self) -> None:
        problem = self._problem()
        self.jobs.set_shortage(problem)
        if not problem:
            self._keep_ballast()
            return
        self._end_culprit(problem)
        self._release_if_full()

    def make_room(self) -> bool:
        """For a store that cannot write: end the job that fills the disk, then give up the ballast. True if that, or
        what the upkeep did a moment ago, may have helped."""
        with self._lock:
            if problem := self._problem():
                self._follow()
                if self._end_culprit(problem):
                    time.sleep(KILL_S)  # else it would fill the room as well
                self._release()
            has_helped = time.monotonic() - self._helped_at_s < HELP_S
        if has_helped:
            time.sleep(KILL_S)
        return has_helped

    def _problem(self) -> str:
        found = os.statvfs(self.folder.root)
        free = found.f_bavail * found.f_frsize
        if free < self.rules.reserve_bytes:
            return f"the disk of the server is nearly full ({shown(free)} left)"
        if found.f_files and found.f_favail < found.f_files * FILES_SHARE:
            return f"the disk of the server is nearly full ({found.f_favail:,} files left)"
        return ""

    def _end_culprit(self, problem: str) -> bool:
        """True if there is one."""
        self._running.all_within(URGENT_S)
        use = self.uses.culprit(self.uses.running.values())
        if use is not None:
            reason = f"{problem}, and this job filled it"
            log.warning("job %s is killed: %s", use.job_id, reason)
            self._end(use.job_id, reason, at_once=True)
            return True
        if time.monotonic() >= self._writer_at_s:
            self._writer_at_s = time.monotonic() + WRITER_S
            self.jobs.end_writer(f"{problem}, and this job writes most")
        return False

    def _end(self, job_id: str, reason: str, *, at_once: bool) -> None:
        self._helped_at_s = time.monotonic()
        self.jobs.end_job(job_id, reason, at_once=at_once)

    def _keep_ballast(self) -> None:
        """Once there is room for it twice."""
        found = os.statvfs(self.folder.root)
        size = ballast_bytes(found)
        if not size or self.ballast.exists() or found.f_bavail * found.f_frsize < self.rules.reserve_bytes + 2 * size:
            return
        aside = self.ballast.with_name(f".{BALLAST}")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir(mode=0o700)
            for number in range(BALLAST_FILES):
                (aside / str(number)).touch(0o600)
            with (aside / "0").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            aside.rename(self.ballast)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            log.warning("the disk has no room for a reserve: %s", error)

    def _release_if_full(self) -> None:
        found = os.statvfs(self.folder.root)
        is_out_of_files = bool(found.f_files) and found.f_favail < BALLAST_FILES // 2
        if is_out_of_files or found.f_bavail * found.f_frsize < ballast_bytes(found) // 2:
            self._release()

    def _release(self) -> None:
        if self.ballast.exists():
            self._helped_at_s = time.monotonic()
            shutil.rmtree(self.ballast, ignore_errors=True)
            log.warning("the disk is full: the ballast was released")


def ballast_bytes(found: os.statvfs_result) -> int:
    return min(BALLAST_BYTES, int(found.f_blocks * found.f_frsize * BALLAST_SHARE))


class Measuring:
    """Measures jobs in turn, a piece at a time."""

    def __init__(self, uses: Uses, walk: Callable[[JobUse], Walk]) -> None:
        self.uses = uses
        self.walk = walk
        self.waiting: deque[JobUse] = deque()
        self._now: tuple[JobUse, Walk] | None = None

    def go(self, entries: int) -> int:
        """Measure each job at most once, and at most this many files. Returns how many were not needed."""
        for _ in range(len(self.waiting) + 1):
            if not (entries := self._go(entries)) or not (self.waiting or self._now):
                break
        return entries

    def all_within(self, seconds: float) -> None:
        """Measure each job once, as far as there is time."""
        by_s = time.monotonic() + seconds
        left = len(self.waiting) + (self._now is not None)
        while left and time.monotonic() < by_s:
            left -= bool(self._go(ENTRIES))

    def _go(self, entries: int) -> int:
        """One job. Returns how many files were not needed; 0: there are more."""
        if self._now is None:
            if not self.waiting:
                return entries
            use = self.waiting.popleft()
            self._now = use, self.walk(use)
        use, walk = self._now
        if left := walk.go(entries):
            self._now = None
            if self.uses.jobs.get(use.job_id) is use:  # else it was deleted meanwhile
                self.uses.measure(use, walk.bytes)
            if use.job_id in self.uses.running:
                self.waiting.append(use)
        return left
