"""What runs: launches from their beginning to their end. It owns no truth: the files do, see `folder.py`.

A task runs at most once per launch, a gang goes when all its shims are ready, and a launch begins only when no process
of the one before is left. Not for several threads.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from skep.core.actions import Action, Launch, Move, Stop, Suspend
from skep.core.cluster import Allocation, Cluster
from skep.core.errors import InputError
from skep.engines.local.accounts import Accounts
from skep.engines.local.begin import Beginner, Beginning, place_tasks, start_shim
from skep.engines.local.cgroups import Cgroups
from skep.engines.local.folder import Folder, LaunchRecord, TaskRecord, lock_holder, read_launch, read_small
from skep.engines.local.ports import Ports
from skep.engines.local.processes import send
from skep.engines.local.run import Phase, Run, Task
from skep.jobs.env import ports_wanted
from skep.jobs.reports import Exited, LaunchFailed, Moved, NodeChanged, Progressed, Report, Started
from skep.jobs.request import Request

NOWHERE = Allocation((), 0)
TERMINATED = 128 + signal.SIGTERM
CLEAR_S = 5.0

log = logging.getLogger(__name__)


class Runs:
    def __init__(
        self,
        folder: Folder,
        cluster: Cluster,
        groups: Cgroups,
        accounts: Accounts,
        request_of: Callable[[str], tuple[Request, str | None]],
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.request_of = request_of
        self.accounts = accounts
        self.beginner = Beginner(folder, groups, accounts)
        self.ports = Ports()
        self.by_job: dict[str, Run] = {}
        """The launch of each job that is not over."""
        self.lost: set[str] = set()
        self.leaving: set[int] = set()
        """Shims of ours that have done their work and must be waited for."""
        self._reports: list[Report] = []
        self._unsettled: list[Run] = []

    def take_reports(self) -> list[Report]:
        reports, self._reports = self._reports, []
        return reports

    def reap(self) -> None:
        self.leaving = {pid for pid in self.leaving if not has_left(pid)}

    # Actions

    def act(self, action: Action) -> None:
        if isinstance(action, Launch | Move):
            self._or_say_why_not(self._launch, action)
            return
        run = self._find(action.job_id)
        if isinstance(action, Stop):
            self._on_stop(action, run)
        elif run is not None:
            for task in run.tasks:
                task.send("suspend" if isinstance(action, Suspend) else "resume")
            self._advance(run)

    def settle(self) -> None:
        """After the last of several actions: what is told of a launch asked for again depends on what follows.

        A job that a move had stopped before the server crashed is to go on, not to be told as stopped.
        """
        unsettled, self._unsettled = self._unsettled, []
        for run in unsettled:
            if self.by_job.get(run.job_id) is run:
                self._advance(run)

    def _or_say_why_not(self, start: Callable[[Launch | Move], None], action: Launch | Move) -> None:
        try:
            start(action)
        except Exception as error:
            self._reports.append(LaunchFailed(action.job_id, action.launch, reason_of(error)))
            if not isinstance(error, OSError | InputError):
                log.exception("start %d of job %s", action.launch, action.job_id)

    def _launch(self, action: Launch | Move) -> None:
        run = self._find(action.job_id)
        if run is None:
            self._begin(action)
        elif run.launch >= action.launch:
            # Asked for again, perhaps by one who has not heard yet that it has moved on: tell how it stands.
            run.was_told, run.is_move = False, isinstance(action, Move) or run.launch > action.launch
            self._unsettled.append(run)
        elif run.is_over and isinstance(action, Launch):
            self._drop(run)
            self._begin(action)
        else:
            run.next = action
            self._stop(run)
            self._advance(run)

    def _begin(self, action: Launch | Move) -> None:
        request, member = self.request_of(action.job_id)
        places = place_tasks(request, member, action.allocation, self.cluster)
        for place in places:
            if place.node in self.lost:
                raise InputError(f"node {place.node} is lost")
        account = self.accounts.of(request.user)
        owner = (action.job_id, action.launch)
        ports = self.ports.take(owner, ports_wanted(request, places))
        try:
            record = self.beginner.write(Beginning(action, request, places, ports, account))
        except BaseException:
            self.ports.give(owner)
            raise
        run = self._run_of(record, action, request, member)
        self.by_job[action.job_id] = run
        self._spawn(run)

    def _run_of(self, record: LaunchRecord, action: Launch | Move, request: Request, member: str | None) -> Run:
        tasks = [Task(each, self.folder.task(action.job_id, action.launch, each.name)) for each in record.tasks]
        return Run(action, request, member, tasks)

    def _spawn(self, run: Run) -> None:
        """Start the shims that are missing. They wait for each other; if one cannot be started, none goes."""
        for task in run.tasks:
            if task.phase is Phase.SPAWNED and not task.has_shim():
                try:
                    task.shim = start_shim(task.path)
                except OSError as error:
                    self._fail(run, f"task {task.record.name} cannot be started: {error.strerror}")
                    return

    def _fail(self, run: Run, reason: str) -> None:
        run.failure = run.failure or reason
        self._stop(run)
        for task in run.tasks:
            if task.phase is Phase.SPAWNED and not task.shim:
                task.bury(stop_asked=True)
        self._advance(run)

    def _find(self, job_id: str) -> Run | None:
        """The last launch of a job, over or not: from memory, else as its files tell it."""
        if job_id in self.by_job:
            return self.by_job[job_id]
        launches = self.folder.launches(job_id)
        if not launches:
            return None
        path = self.folder.launch(job_id, launches[-1])
        record = read_launch(path)
        if record is None:
            # The machine went down before it was on the disk. Nothing can be said of that start, so it is made anew.
            clear(self.folder, path)
            return self._find(job_id)
        run = self._run_of(record, Launch(job_id, NOWHERE, launches[-1]), *self.request_of(job_id))
        self.by_job[job_id] = run
        for task in run.tasks:
            self.ports.keep((job_id, run.launch), task.record.ports)
            self._look(task)
            self._bury_if_dead(run, task)
        if all(task.phase is not Phase.GONE for task in run.tasks):
            self._spawn(run)
        return run

    def _on_stop(self, action: Stop, run: Run | None) -> None:
        if run is None:
            self._reports.append(Exited(action.job_id, 0, TERMINATED, was_stopped=True))
            return
        run.next = None
        self._stop(run)
        self._advance(run)

    def _stop(self, run: Run) -> None:
        run.is_stopping = True
        for task in run.tasks:
            if task.phase is Phase.READY and not run.has_gone:
                task.send(f"kill {run.kill_cause}")
            elif task.phase in (Phase.READY, Phase.RUNNING):
                task.send(f"stop {run.request.grace_s}")

    # Nodes

    def lose(self, node: int, name: str) -> None:
        self.lost.add(name)
        self._reports.append(NodeChanged(node, False))
        for run in list(self.by_job.values()):
            there = [task for task in run.tasks if task.record.node == name and task.phase is not Phase.GONE]
            if there:
                run.kill_cause = "node-lost"
                for task in there:
                    task.send("kill node-lost")
                self._stop(run)

    def restore(self, node: int, name: str) -> None:
        self.lost.discard(name)
        self._reports.append(NodeChanged(node, True))

    # What happened

    def answer(self, rings: list[str]) -> None:
        """Look where it rang: `job/launch/task`. Whatever else is written into the fifo is nobody's."""
        changed: dict[str, Run] = {}
        for ring in rings:
            job_id, launch, name = ["", "", *ring.rsplit("/", 2)][-3:]
            run = self.by_job.get(job_id)
            if run is not None and str(run.launch) == launch:
                changed[job_id] = run
                for task in run.tasks:
                    if task.record.name == name:
                        self._look(task)
        for run in changed.values():
            self._advance(run)

    def check(self, run: Run) -> None:
        """Everything about one launch, for what nobody rang about."""
        for task in run.tasks:
            if task.phase is Phase.RUNNING and task.has_shim():
                continue  # Nearly all, nearly always: one question each.
            self._look(task)
            if task.phase is Phase.SPAWNED:
                self._check_spawned(run, task)
            self._bury_if_dead(run, task)
        self._read_progress(run)
        self._advance(run)

    def _check_spawned(self, run: Run, task: Task) -> None:
        if task.shim and has_left(task.shim):
            task.shim = 0
            self._look(task)
            if task.phase is Phase.SPAWNED and not task.has_shim() and not run.failure:
                said = (read_small(task.path / "shim.err") or b"").decode(errors="replace").strip().splitlines()
                self._fail(run, f"task {task.record.name} cannot be started: {said[-1] if said else 'its shim died'}")

    def _look(self, task: Task) -> None:
        task.look()
        if task.phase is Phase.GONE and task.shim:
            self.leaving.add(task.shim)
            task.shim = 0

    def _bury_if_dead(self, run: Run, task: Task) -> None:
        if task.phase in (Phase.READY, Phase.RUNNING) and not task.has_shim():
            if not (task.path / "lock").exists():
                run.failure = run.failure or f"the folder of task {task.record.name} was removed while it ran"
            if task.bury(stop_asked=run.is_stopping):
                self._look(task)

    def _read_progress(self, run: Run) -> None:
        """Of the first task that reports any, if it is new."""
        for task in run.tasks:
            stamp = task.progress_stamp()
            if stamp and stamp != task.progress_ns:
                task.progress_ns = stamp
                self._reports.append(Progressed(run.job_id, run.launch, task.progress()))
            if stamp:
                return

    def _advance(self, run: Run) -> None:
        if run.is_stopping:
            self._stop_late(run)
        else:
            self._go(run)
            if run.has_gone and not run.is_over and run.decided() is not None:
                self._stop(run)
        if run.is_over and self.by_job.get(run.job_id) is run:
            self._end(run)

    def _stop_late(self, run: Run) -> None:
        """A shim that was not ready yet when the launch was stopped never gets to go."""
        for task in run.tasks:
            if task.phase is Phase.READY and not run.has_gone:
                task.send(f"kill {run.kill_cause}")

    def _go(self, run: Run) -> None:
        unborn = [task for task in run.tasks if task.exit and not task.exit.ran]
        if unborn:
            # The others of a gang must not go. Its shim was told to leave, or was killed while it waited.
            if not all(task.exit and task.exit.stop_asked for task in unborn):
                run.failure = run.failure or f"task {unborn[0].record.name} was killed before it could start"
            self._stop(run)
        elif not run.has_gone and all(task.phase is not Phase.SPAWNED for task in run.tasks) and self._has_room(run):
            run.has_gone = True
            for task in run.tasks:
                if task.phase is Phase.READY:
                    task.send("go")
        if run.has_gone and not run.was_told and all(task.phase >= Phase.RUNNING for task in run.tasks):
            run.was_told = True
            self._reports.append((Moved if run.is_move else Started)(run.job_id, run.launch))

    def _has_room(self, run: Run) -> bool:
        """Two jobs may be told to move at once, each onto what the other still holds: who is ready waits for it."""
        wanted = run.gpus_in_use(Phase.READY)
        others = (other for other in self.by_job.values() if other is not run)
        return not any(wanted & other.gpus_in_use(Phase.RUNNING) for other in others)

    def _end(self, run: Run) -> None:
        self._drop(run)
        for other in [other for other in self.by_job.values() if not other.has_gone and not other.is_stopping]:
            self._advance(other)
        verdict = run.verdict()
        is_own = isinstance(verdict, Exited) and not verdict.was_stopped and verdict.cause != "node-lost"
        if run.next is not None and not is_own:
            self._or_say_why_not(self._begin, run.next)
        else:
            self._reports.append(verdict)

    def _drop(self, run: Run) -> None:
        self.by_job.pop(run.job_id, None)
        self.ports.give((run.job_id, run.launch))

    def kill_stray(self, path: Path) -> None:
        record = read_launch(path)
        if record is None:
            if path.exists():
                clear(self.folder, path)
            return
        run = self.by_job.get(record.job_id)
        if run is not None and run.launch == record.launch:
            return  # Somebody has asked for it meanwhile.
        for each in record.tasks:
            task = Task(each, self.folder.task(record.job_id, record.launch, each.name))
            if not task.send("kill"):
                kill_shim(task.path)
                task.bury(stop_asked=True)


def clear(folder: Folder, launch: Path) -> None:
    """Remove a launch without a record, and whatever runs of it."""
    for path in (each for each in launch.iterdir() if each.is_dir()):
        kill_shim(path)
        own = folder.own / path.relative_to(folder.jobs) / "own"
        task = Task(TaskRecord(path.name, 0, "", own=str(own)), path)
        by_s = time.monotonic() + CLEAR_S
        while not task.bury(stop_asked=True) and time.monotonic() < by_s:
            time.sleep(0.01)
    shutil.rmtree(launch)


def kill_shim(path: Path) -> None:
    """Kill it: one that is not ready to hear yet, or whose launch nobody knows."""
    if (pid := lock_holder(path)) > 0:
        send(pid, signal.SIGKILL)


def has_left(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def reason_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return str(error) or type(error).__name__
