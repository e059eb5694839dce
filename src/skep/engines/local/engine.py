"""The engine that runs real processes on this machine.

One thread does everything, in order: what it is asked (a queue), what shims ring about (a fifo), and now and then a
look at everything that runs, for rings that were lost and shims that were killed. What it does is in `runs.py`.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from skep.core.actions import Action
from skep.core.cluster import Cluster
from skep.core.errors import NotFound
from skep.core.events import Event
from skep.engines.local.accounts import Accounts
from skep.engines.local.begin import Beginner, TaskFile
from skep.engines.local.cgroups import Cgroups, find_bases
from skep.engines.local.folder import Folder
from skep.engines.local.gpus import read_gpus
from skep.engines.local.logs import log_files
from skep.engines.local.run import Task
from skep.engines.local.runs import Runs
from skep.engines.local.start import forks
from skep.files.untrusted import decode_as, read_small, reserve
from skep.jobs.limits import UNLIMITED, LimitRules
from skep.jobs.reports import Looked, Report
from skep.jobs.request import Request

LOOK_S = 1.0
"""Between two looks at everything that runs."""
TASK_FILE_MAX = 4 << 20
LAUNCHES_READ = 3
TASKS_READ = 64
CURVES_READ = 100
HEALTH_S = 5.0
RING_MAX = 4096
"""Bytes of a line in the fifo; what is longer is no name of a task."""

log = logging.getLogger(__name__)


class LocalEngine:
    """What is told comes from the engine's own thread, in the order in which it happened."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        request_of: Callable[[str], tuple[Request, str | None]],
        tell: Callable[[list[Report]], None],
        accounts: Accounts | None = None,
        limits: LimitRules = UNLIMITED,
    ) -> None:
        """`request_of` gives the request of a job of the core and, for a member of an incremental job, its task."""
        accounts = accounts or Accounts()
        self.folder = Folder(folder.absolute(), accounts.job_files if accounts.differ else None)
        self.folder.prepare()
        reserve.fill()
        self.groups = Cgroups(find_bases(), self.folder.root)
        if problem := self.groups.problem():
            log.warning("%s", problem)
        self.cluster = cluster
        self.tell = tell
        self.runs = Runs(self.folder, cluster, Beginner(self.folder, self.groups, accounts, limits), request_of)
        self._todo: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._bell = os.open(self.folder.reports, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rung = b""
        self._untold: list[Report] = []
        self._health: dict[str, list[dict[str, Any]]] = {}
        self._health_s = -HEALTH_S
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_open = True
        self._removal: threading.Thread | None = None
        self._remove_forgotten()
        self._thread = threading.Thread(target=self._work, name="skep-local-engine", daemon=True)
        self._thread.start()

    # What others ask; any thread.

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        """Begin these. Nothing is known at once; what comes of them is told."""
        self._ask(self._act, actions)
        return []

    def sweep(self, known: set[tuple[str, int]]) -> None:
        """Kill whatever runs for launches that nobody knows and nobody asks for. They are not told of."""
        paths = {self.folder.launch(job_id, launch) for job_id, launch in known}
        threading.Thread(target=self._find_strays, args=(paths,), name="skep-local-sweep", daemon=True).start()

    def lose_node(self, node: str) -> None:
        """Kill everything there, at once."""
        self._ask(self.runs.lose, node)

    def restore_node(self, node: str) -> None:
        self._ask(self.runs.restore, node)

    def use_cluster(self, cluster: Cluster) -> None:
        """For launches from now on; what runs stays on the nodes it has, by name."""
        self.cluster = cluster
        self._ask(self.runs.use_cluster, cluster)

    def look(self) -> None:
        """At everything that runs; what has ended is told, and then that this was done."""
        self._ask(self._look_now)

    def last_job(self) -> int:
        """The largest number of a job that has files here."""
        return self.folder.last_job()

    def forget(self, job_id: str) -> None:
        """Remove the files of a job that has ended, its logs and checkpoints too."""
        if job_id not in self.runs.by_job:
            self.folder.put_aside(job_id)
            self._remove_forgotten()

    def close(self) -> None:
        """The jobs go on; the next engine on this folder finds them."""
        self._ask(setattr, self, "_is_open", False)
        self._thread.join()
        os.close(self._bell)
        os.close(self._wake)

    # What others read; any thread. The files are the truth, so nobody needs to be asked.

    def log_files(self, job_id: str, task: str = "", launch: int = 0) -> list[Path]:
        """The parts of a task's log, oldest first; without a name the first task, without a number the last launch."""
        return log_files(self._task_path(job_id, task, launch))

    def progress(self, job_id: str) -> dict[str, Any]:
        """What the job said last of itself through `skep.train`. Never fails: it is asked for whole lists of jobs."""
        run = self.runs.by_job.get(job_id)
        try:
            if run is not None and (run.progress or run.launch == 1):
                return run.progress
            return self._kept_progress(job_id)
        except (OSError, NotFound):
            return {}

    def _kept_progress(self, job_id: str) -> dict[str, Any]:
        """Of the last starts that said anything: one that has just begun says nothing yet."""
        for launch in reversed(self.folder.launches(job_id)[-LAUNCHES_READ:]):
            for record in self.folder.record(job_id, launch).tasks[:TASKS_READ]:
                values = Task(record, self.folder.task(job_id, launch, record.name)).progress()
                if values:
                    return values
        return {}

    def metrics_files(self, job_id: str, task: str = "") -> list[tuple[int, Path]]:
        """By launch, oldest first, where a task's curve is; without a name that of the first task."""
        found = []
        for launch in self.folder.launches(job_id)[-CURVES_READ:]:
            try:
                records = self.folder.record(job_id, launch).tasks
            except (OSError, NotFound):
                continue
            for record in [each for each in records if not task or each.name == task][:1]:
                own = Task(record, self.folder.task(job_id, launch, record.name)).own
                found.append((launch, own / "metrics.jsonl"))
        return found

    def gpu_health(self) -> dict[str, list[dict[str, Any]]]:
        """By node, what the driver says of its GPUs; nothing of virtual ones. Asked at most once in a while."""
        if time.monotonic() - self._health_s >= HEALTH_S:
            self._health_s = time.monotonic()
            readings = read_gpus()
            here = socket.gethostname().split(".")[0]
            node = self.cluster.by_name.get(here)
            is_real = node is not None and node.gpu_count == len(readings) > 0
            self._health = {here: [msgspec.structs.asdict(each) for each in readings]} if is_real else {}
        return self._health

    def tasks(self, job_id: str) -> list[dict[str, Any]]:
        """How each task of the last launch stands."""
        try:
            launches = self.folder.launches(job_id)
            records = self.folder.record(job_id, launches[-1]).tasks if launches else []
        except (OSError, NotFound):
            return []
        return [self._task(Task(each, self.folder.task(job_id, launches[-1], each.name))) for each in records]

    def _task(self, task: Task) -> dict[str, Any]:
        try:
            task.look()
            state = task.state
        except OSError:
            state = "unknown"
        code = task.exit.code if task.exit is not None else None
        record = task.record
        return {"name": record.name, "state": state, "node": record.node, "gpus": record.gpus, "exit_code": code}

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> dict[str, Any]:
        """What a command needs to run as if it were the task: `env`, `cwd`, and the task's name."""
        file = decode_as(read_small(self._task_path(job_id, task, launch) / "task.json", TASK_FILE_MAX), TaskFile)
        if file is None:
            raise NotFound(f"job {job_id}: its task left no environment")
        return {"env": file.env, "cwd": file.cwd, "task": file.name.rpartition("/")[2]}

    def _task_path(self, job_id: str, task: str, launch: int) -> Path:
        try:
            launches = self.folder.launches(job_id)
        except OSError as error:
            raise NotFound(f"job {job_id}: its files cannot be read now: {error.strerror}") from None
        if not launches or (launch and launch not in launches):
            raise NotFound(f"job {job_id}: there was no start{f' {launch}' if launch else ''} of it yet")
        launch = launch or launches[-1]
        names = [record.name for record in self.folder.record(job_id, launch).tasks]
        if task and task not in names:
            raise NotFound(f"job {job_id}: no task {task[:100]!r}", hint=f"it has {', '.join(names[:20])}")
        return self.folder.task(job_id, launch, task or names[0])

    def _remove_forgotten(self) -> None:
        """Beside everything else: a job may leave millions of files."""
        if self._removal is None or not self._removal.is_alive():
            self._removal = threading.Thread(target=self.folder.remove_aside, name="skep-local-remove", daemon=True)
            self._removal.start()

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
                self._try(self.runs.check)
                look_at = time.monotonic() + LOOK_S
            self._deliver()

    def _wait_ms(self, look_at: float) -> float | None:
        is_idle = not (self.runs.by_job or self.runs.strays or self.runs.unread or self.runs.delayed or self._untold)
        return None if is_idle else max(look_at - time.monotonic(), 0.0) * 1000 + 1

    def _deliver(self) -> None:
        """What cannot be told now is told later, before anything newer."""
        self._untold += self.runs.take_reports()
        if self._untold:
            try:
                self.tell(self._untold)
                self._untold = []
            except Exception:
                log.exception("%d reports of the local engine found no ear", len(self._untold))

    def _do_all(self) -> None:
        while True:
            try:
                what, args = self._todo.get_nowait()
            except Empty:
                return
            self._try(what, *args)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            self._try(self.runs.act, action)
        self.runs.settle()

    def _look_now(self) -> None:
        self._try(self.runs.check)
        self._untold += [*self.runs.take_reports(), Looked()]

    def _rings(self) -> list[str]:
        *lines, rest = (self._rung + os.read(self._bell, 1 << 16)).split(b"\n")
        self._rung = rest[-RING_MAX:]
        return [line.decode(errors="replace") for line in dict.fromkeys(lines)]

    def _try(self, what: Callable[..., None], *args: Any) -> None:
        """A mistake about one job must not end the engine of all."""
        try:
            what(*args)
        except Exception as error:
            # What the machine refuses, such as room on the disk, it refuses again at every look: a line each is enough.
            is_bug = not isinstance(error, OSError)
            log.error("the local engine could not do this: %s: %s", args, error, exc_info=is_bug)

    def _find_strays(self, known: set[Path]) -> None:
        """In a thread of its own: a long history has many folders, and launches should not wait for them."""
        paths = [path for path in self.folder.all_launches() if path not in known]
        while paths and self._is_open:
            paths = [path for path in paths if not self._is_seen_to(path)]
            if paths:
                time.sleep(LOOK_S)

    def _is_seen_to(self, path: Path) -> bool:
        """False where it cannot be read now: that does not mean that nothing runs."""
        try:
            if not self.folder.is_over(path):
                self._ask(self.runs.kill_strays, [path])
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s cannot be read now: %s", path, error)
            return False
        return True
