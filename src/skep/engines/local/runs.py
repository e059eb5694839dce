"""How the engine handles actions, notifications of shims and the check once a second. Not thread-safe."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Collection
from pathlib import Path

from skep.core.actions import Action, Checkpoint, Launch, Limit, Move, Reshare, Resume, Stop, Suspend, Tune
from skep.core.cluster import Cluster
from skep.core.events import NodeBack, NodeLost
from skep.core.reports import Exited, Overrun, Progressed, Refused, Report
from skep.engines.local.ask import ask
from skep.engines.local.folder import read_launch
from skep.engines.local.launches import NOWHERE, START_S, Launches, reason_of
from skep.engines.local.processes import family, send, state_of, written_by
from skep.engines.local.reap import DeadTask, clear, kill_by_force, reap
from skep.engines.local.run import FULL_DISK, NODE_LOST, SHIM_KILLED, LaunchRun, LocalTask, Phase
from skep.files.untrusted import is_file, read_small
from skep.jobs.request import Request

STRAY = Request("stray", {})
TERMINATED = 128 + signal.SIGTERM
STOPPED = b"T"
WRITER_S = 0.5
WRITTEN_MIN = 4 << 20
"""How long the writes of jobs are counted when the disk is nearly full, and how many bytes count as filling it."""
LEASE_S = 5.0
"""The lease of a suspension; it is renewed at every check."""
STOPPED_EVERY = 5
"""The number of checks between two searches for shims that were stopped by a signal."""

log = logging.getLogger(__name__)


class Runs(Launches):
    def take_reports(self) -> list[Report]:
        reports, self._reports = self._reports, []
        return reports

    # Actions

    def act(self, action: Action) -> None:
        if action.job_id in self.delayed:
            self.delayed[action.job_id].append(action)
            return
        try:
            self._act(action, self._find(action.job_id))
        except OSError as error:
            log.warning("job %s: %s waits: %s", action.job_id, type(action).__name__, error)
            self.delayed[action.job_id] = [action]
        except Exception as error:
            log.exception("job %s: %s", action.job_id, action)
            if isinstance(action, Launch | Move):
                self._say_why_not(action, error)

    def _act(self, action: Action, run: LaunchRun | None) -> None:
        if isinstance(action, Launch | Move):
            self._launch(action, run)
        elif isinstance(action, Stop):
            self._on_stop(action, run)
        elif run is not None and action.launch in (0, run.launch) and not run.is_stopping and not run.is_over:
            self._on_running(action, run)

    def _on_running(self, action: Suspend | Resume | Limit | Tune | Checkpoint | Reshare, run: LaunchRun) -> None:
        if isinstance(action, Suspend) and action.memory == "resident":
            run.is_to_stand, run.told_standing = True, False
            self._hold(run)
        elif isinstance(action, Resume):
            run.is_to_stand, run.told_standing = False, True
            for task in run.tasks:
                task.send(self.epoch, "resume")
        elif isinstance(action, Checkpoint | Tune):
            self._ask_job(action, run)
        elif isinstance(action, Reshare):
            self._set_share(run, action)
        elif isinstance(action, Limit) and run.allocation.terms.gpus:
            run.limit = action.milli
            self._follow_terms(run)
        else:
            self._refuse(action, run, "the local engine cannot do this")
        self._advance(run)

    def _ask_job(self, action: Checkpoint | Tune, run: LaunchRun) -> None:
        """Settings are stored for a job that begins to use `skep.train` later; a job that does not use it cannot
        save."""
        if isinstance(action, Checkpoint) and not any(task.progress_stamp() for task in run.tasks):
            self._refuse(action, run, "the job does not use skep.train (yet)")
            return
        try:
            for task in run.tasks:
                ask(task.own, action)
        except OSError as error:  # The job has closed or damaged its folder: its other actions must not wait for that.
            self._refuse(action, run, reason_of(error))

    def _refuse(self, action: Action, run: LaunchRun, reason: str) -> None:
        self._reports.append(Refused(run.job_id, run.launch, type(action).__name__.lower(), reason))

    def _hold(self, run: LaunchRun) -> None:
        """Suspend its tasks, or renew the suspension: without renewal they continue after a while, so that a crash of
        the engine does not leave them suspended forever."""
        for task in run.tasks:
            if task.phase is Phase.RUNNING:
                task.send(self.epoch, "suspend", LEASE_S)

    def _launch(self, action: Launch | Move, run: LaunchRun | None) -> None:
        if run is None:
            self._begin_or_say(action)
        elif run.launch >= action.launch:
            # A repeated action, perhaps of a server that missed a report: report the status again.
            run.was_told, run.is_move = False, isinstance(action, Move) or run.launch > action.launch
            run.told_standing = False
            if run.launch == action.launch:
                self._set_share(run, action)
            self._unsettled.append(run)
        elif run.is_over and isinstance(action, Launch):
            self._drop(run)
            self._begin_or_say(action)
        else:
            run.next = action
            self._stop(run)
            self._advance(run)

    def _on_stop(self, action: Stop, run: LaunchRun | None) -> None:
        if run is None:
            self._reports.append(Exited(action.job_id, action.launch, TERMINATED, was_stopped=True))
            return
        if 0 < action.launch < run.launch:
            return  # Stale: it was meant for an earlier launch.
        run.next = None
        self._stop(run)
        self._advance(run)

    def retry(self) -> None:
        """Retry what could not be done before."""
        delayed, self.delayed = self.delayed, {}
        for action in [action for actions in delayed.values() for action in actions]:
            self.act(action)
        self.settle()

    def settle(self) -> None:
        """After the last of several actions, because the report of a repeated launch depends on what follows.

        A job that a move had stopped before the server crashed will continue, and must not be reported as stopped.
        """
        self.reap_dead()
        unsettled, self._unsettled = self._unsettled, []
        for run in unsettled:
            if self.by_job.get(run.job_id) is run:
                self._guarded(run, self._advance, run)

    def share(self) -> None:
        """Send the turn keeper the present groups. A server that starts first reads what the keeper has."""
        if self.epoch or self.sharing or self.shares.is_used:
            self.shares.send_groups(self.sharing.values(), self.epoch)

    # Nodes

    def use_cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lost &= cluster.by_name.keys()
        for run in self.by_job.values():
            self._follow_terms(run)  # The speed of its GPUs may have changed.

    def lose(self, node: str) -> None:
        self.lost.add(node)
        self._reports.append(NodeLost(node))
        for run in list(self.by_job.values()):
            there = [task for task in run.tasks if task.record.node == node and task.phase is not Phase.GONE]
            if there:
                run.kill_cause = NODE_LOST
                self._guarded(run, self._kill, run, there)

    def _kill(self, run: LaunchRun, tasks: list[LocalTask]) -> None:
        for task in tasks:
            task.send(self.epoch, "kill", run.kill_cause)
        self._stop(run)

    def end_for_disk(self, job_id: str, reason: str, at_once: bool) -> None:
        run = self.by_job.get(job_id)
        if run is None or run.is_over:
            return
        self._reports.append(Overrun(job_id, run.launch, reason))
        if at_once:
            run.next, run.kill_cause = None, FULL_DISK
            self._guarded(run, self._kill, run, [task for task in run.tasks if task.phase is not Phase.GONE])

    def end_writer(self, reason: str) -> None:
        """End the job whose processes write most at present: it may fill the disk elsewhere than in its folder."""
        before = {run: self._written(run) for run in self.by_job.values()}
        time.sleep(WRITER_S)
        grown = {run: self._written(run) - size for run, size in before.items()}
        run = max(grown, key=lambda run: grown[run], default=None)
        if run is not None and grown[run] >= WRITTEN_MIN:
            log.warning("%r is killed: %s", run, reason)
            self.end_for_disk(run.job_id, reason, at_once=True)

    def _written(self, run: LaunchRun) -> int:
        shims = [shim for task in run.tasks if task.phase is Phase.RUNNING and (shim := task.shim_pid())]
        return sum(written_by(pid) for shim in shims for pid in family(shim))

    def restore(self, node: str) -> None:
        self.lost.discard(node)
        self._reports.append(NodeBack(node))

    # Notifications and checks

    def answer(self, rings: list[str]) -> None:
        """Check the task named by a notification: `job/launch/task`. Other text in the fifo is ignored."""
        rung: dict[LaunchRun, set[str]] = {}
        for ring in rings:
            job_id, launch, name = ["", "", *ring.rsplit("/", 2)][-3:]
            run = self.by_job.get(job_id)
            if run is not None and str(run.launch) == launch:
                rung.setdefault(run, set()).add(name)
        for run, names in rung.items():
            self._guarded(run, self._look_at, run, names)

    def _look_at(self, run: LaunchRun, names: set[str]) -> None:
        for task in run.tasks:
            if task.record.name in names:
                self._look(task)
        self._advance(run)

    def check(self) -> None:
        """Check every launch, because notifications of shims may be lost."""
        self.checks += 1
        for run in self.by_job.values():
            if run.is_to_stand and not run.is_stopping:
                self._guarded(run, self._hold, run)  # First, because the rest may take long.
        self.shares.check()
        self._reports += self.shares.news()
        self.retry()
        self.kill_strays([])
        for run in list(self.by_job.values()):
            self._guarded(run, self._check, run)
            self._guarded(run, self._read_progress, run)
        for stray in self.strays:
            self._guarded(stray, self._check, stray)
        self.reap_dead()
        self.strays = [stray for stray in self.strays if not stray.is_over]

    def check_jobs(self, job_ids: Collection[str]) -> None:
        """Check the launches of these jobs only."""
        for run in [self.by_job[job_id] for job_id in job_ids if job_id in self.by_job]:
            self._guarded(run, self._check, run)
        self.reap_dead()

    def _check(self, run: LaunchRun) -> None:
        for task in run.tasks:
            shim = task.shim_pid() if task.phase is not Phase.GONE else 0
            if shim and self.checks % STOPPED_EVERY == 0 and state_of(shim) == STOPPED:
                send(shim, signal.SIGCONT)  # Its task has stopped it, and it could not notice the end of the task.
            if task.phase is Phase.RUNNING and shim and not (run.is_to_stand or run.told_standing):
                continue  # Nearly all, nearly always: one query each.
            self._look(task)
            if task.phase is Phase.READY and run.has_gone and not run.is_stopping:
                task.send(self.epoch, "go")  # Once more: the first may be lost.
            if task.phase is Phase.SPAWNED and not shim:
                self._check_spawned(run, task)
            elif task.phase in (Phase.READY, Phase.RUNNING) and not shim:
                self._find_dead(run, task)
        if time.monotonic() >= run.force_at_s:
            self._on_time_over(run)
        self._advance(run)

    def _check_spawned(self, run: LaunchRun, task: LocalTask) -> None:
        """Its shim has not begun yet, or died before it could, or has begun and the task has deleted its files."""
        if not is_file(task.path / "lock"):
            self._find_dead(run, task)
            return
        if task.shim and not task.shim.has_left:
            return
        was_started, task.shim = task.shim is not None, None
        self._look(task)  # It may have begun and ended between two checks, or another one has the lock.
        if task.phase is not Phase.SPAWNED or task.shim_pid():
            return
        if run.is_stopping:
            self.dead[task] = (run, "")
        elif was_started:
            self._fail(run, f"task {task.record.name} cannot be started: {self._said(task)}", SHIM_KILLED)
        else:
            self._spawn(run)

    def _said(self, task: LocalTask) -> str:
        """The last error message of its shim."""
        said = (read_small(task.path / "shim.err") or b"").decode(errors="replace").strip().splitlines()
        return said[-1][:1000] if said else "its shim died"

    def _find_dead(self, run: LaunchRun, task: LocalTask) -> None:
        if not is_file(task.path / "lock") and not run.failure:
            run.failure = f"the folder of task {task.record.name} was removed while it ran"
            if task.shim and not task.shim.has_left:
                send(task.shim.pid, signal.SIGKILL)
        self.dead[task] = (run, SHIM_KILLED)

    def reap_dead(self) -> None:
        """All at once; processes that did not die are found again at the next check."""
        dead, self.dead = self.dead, {}
        for task in reap([DeadTask(task, run.is_stopping, cause) for task, (run, cause) in dead.items()]):
            self._guarded(dead[task][0], self._look, task)
        for run in dict.fromkeys(run for run, _ in dead.values()):
            self._guarded(run, self._advance, run)

    def _on_time_over(self, run: LaunchRun) -> None:
        """Its shims do not answer: they are stopped, or stuck, or their fifos are gone."""
        if run.is_stopping:
            log.warning("%r still runs after its grace period: it is killed", run)
            for task in run.tasks:
                if task.phase is not Phase.GONE:
                    kill_by_force(task)
                    self.dead[task] = (run, "")
        elif not run.was_told and (run.has_gone or not run.is_ready):
            self._fail(run, f"it did not start within {START_S:g} s", SHIM_KILLED)

    def _read_progress(self, run: LaunchRun) -> None:
        """The progress of the first task that reports any, if it is new."""
        for task in run.tasks:
            stamp = task.progress_stamp()
            if stamp and stamp != task.progress_ns:
                task.progress_ns = stamp
                run.progress = task.progress()
                self._reports.append(Progressed(run.job_id, run.launch, run.progress))
            if stamp:
                return

    def kill_strays(self, paths: list[Path]) -> None:
        """End launches that the server does not know, without a report."""
        self.unread += paths
        unread, self.unread = self.unread, []
        for path in unread:
            try:
                self._kill_stray(path)
            except OSError as error:
                log.warning("%s cannot be read now: %s", path, error)
                self.unread.append(path)

    def _kill_stray(self, path: Path) -> None:
        record = read_launch(path)
        if record is None:
            if path.exists():
                clear(self.folder, path)
            return
        run = self.by_job.get(record.job_id)
        if run is not None and run.launch == record.launch:
            return  # The server has requested it meanwhile.
        stray = self._run_of(record, Launch(record.job_id, NOWHERE, record.launch), STRAY, None)
        stray.kill_cause = "stray"
        for task in stray.tasks:
            task.look()
        self.strays.append(stray)
        self._guarded(stray, self._kill, stray, stray.tasks)
