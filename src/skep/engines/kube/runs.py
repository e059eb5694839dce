"""What the engine does with actions and with the changes of pods. For the engine's thread only.

Requests to the API server are made by worker threads, which post the result back. Everything that must survive a crash
is in the pods or in the files of the launch: `launch.json` before the first pod is created, `started` when all tasks
run, `asked` before it is stopped, and for each task `exit.json` when it has ended. A task gets its folder with its
first file.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from skep.core.actions import Action, Checkpoint, Launch, Move, Reshare, Stop, Tune, names_of
from skep.core.cluster import Allocation, Cluster
from skep.core.errors import InputError
from skep.core.events import NodeBack, NodeLost
from skep.core.model import GroupRef
from skep.core.reports import Exited, LaunchFailed, Launching, Moved, Refused, Report, Started
from skep.engines.kube.api import ApiError
from skep.engines.kube.copy_log import LogCopy, copy_log
from skep.engines.kube.gang import GangFailed, GangStarter
from skep.engines.kube.objects import KubePod, WaitingContainer
from skep.engines.kube.pods import JOB, LAUNCH, PodMaker, as_word, launch_name
from skep.engines.kube.run import KILLED, TERMINATED, KubeRun, exit_of, why_never
from skep.engines.local.ask import ask
from skep.engines.local.begin import place_tasks
from skep.engines.local.folder import (
    ExitRecord,
    Folder,
    LaunchRecord,
    TaskRecord,
    read_launch,
    safe_name,
    write_durable,
)
from skep.engines.local.run import NODE_LOST, LocalTask, Phase
from skep.jobs.env import TaskPlace
from skep.jobs.request import Request

RETRY_S = (0.2, 5.0)
ASKED, STARTED = "asked", "started"

log = logging.getLogger(__name__)


class KubeRuns:
    def __init__(
        self,
        folder: Folder,
        cluster: Cluster,
        request_of: Callable[[str], tuple[Request, GroupRef | None]],
        maker: PodMaker,
        starter: GangStarter,
        pods: dict[str, KubePod],
        post: Callable[..., None],
    ) -> None:
        """`pods` is what the watch has seen; `post` runs a function in the engine's thread."""
        self.folder, self.cluster, self.request_of, self.maker, self.starter = (
            folder,
            cluster,
            request_of,
            maker,
            starter,
        )
        self.seen, self.post = pods, post
        self.api = starter.api
        self.by_job: dict[str, KubeRun] = {}
        self.lost: set[str] = set()
        self.is_closing = False
        self.reports: list[Report] = []
        self.pool = ThreadPoolExecutor(16, thread_name_prefix="skep-kube")

    # Actions

    def act(self, action: Action) -> None:
        run = self._find(action.job_id)
        if isinstance(action, Launch | Move):
            self._launch(action, run)
        elif isinstance(action, Stop):
            self._on_stop(action, run)
        elif run is not None and not run.is_stopping and not run.is_over and action.launch in (0, run.launch):
            self._on_request(action, run)

    def _on_request(self, action: Action, run: KubeRun) -> None:
        if isinstance(action, Checkpoint | Tune) and self.maker.settings.reports:
            for task in run.tasks:
                make_folder(task)
                ask(task.own, action)
        elif not isinstance(action, Reshare):
            kind = type(action).__name__.lower()
            self.reports.append(Refused(run.job_id, run.launch, kind, "the Kubernetes engine cannot do this"))

    def _launch(self, action: Launch | Move, run: KubeRun | None) -> None:
        if run is None:
            self._begin(action)
        elif run.launch >= action.launch:
            # Asked for again, perhaps by a server that missed a report.
            run.was_told, run.is_move = False, isinstance(action, Move) or run.launch > action.launch
            self.resume(run)
        elif run.is_over and isinstance(action, Launch):
            self._begin(action)
        else:
            run.next = action
            self._stop(run)
            self.advance(run)

    def _on_stop(self, action: Stop, run: KubeRun | None) -> None:
        if run is None:
            self.reports.append(Exited(action.job_id, action.launch, TERMINATED, was_stopped=True))
        elif not 0 < action.launch < run.launch:
            run.next = None
            if run.is_over:
                run.was_told = False
            self._stop(run)
            self.advance(run)

    # The beginning

    def _begin(self, action: Launch | Move) -> None:
        request, member = self.request_of(action.job_id)
        try:
            places = place_tasks(request, member, action.allocation, names_of(action))
            gang = self.maker.gang(request, action.job_id, action.launch, places)
        except InputError as error:
            self.reports.append(LaunchFailed(action.job_id, action.launch, str(error)))
            return
        if gone := {place.node for place in places} & self.lost:
            self.reports.append(LaunchFailed(action.job_id, action.launch, f"node {min(gone)} is lost", NODE_LOST))
            return
        is_exact = self.maker.settings.gpus == "visible"
        tasks = [
            TaskRecord(place.role, place.index, place.node, gpus=list(place.gpus) if is_exact else [])
            for place in places
        ]
        record = LaunchRecord(action.job_id, action.launch, tasks)
        path = self.folder.launch(action.job_id, action.launch)
        os.makedirs(path, mode=0o700, exist_ok=True)
        write_durable(path / "launch.json", record)
        run = self.by_job[action.job_id] = self._run_of(record, action, request, member)
        self._start(run, lambda: self.starter.start(gang))

    def _start(self, run: KubeRun, start: Callable[[], None]) -> None:
        run.is_starting = True

        def work() -> None:
            try:
                self.persist(start)
                self.post(self._on_bound, run, "", "")
            except GangFailed as error:
                self.post(self._on_bound, run, str(error), error.cause)
            except Exception as error:
                if self.is_closing:
                    return  # the next server goes on with it
                log.exception("%r", run)
                self.post(self._on_bound, run, str(error), "")

        self.pool.submit(work)

    def _on_bound(self, run: KubeRun, failure: str, cause: str) -> None:
        run.is_starting = False
        if failure:
            self._fail(run, failure, cause)
        elif run.is_stopping:
            self._delete(run, 1 if run.failure else None)
        self._look_at_all(run)
        self.advance(run)

    def _fail(self, run: KubeRun, failure: str, cause: str = "") -> None:
        """The launch did not begin: none of its tasks may run."""
        run.failure, run.failure_cause = run.failure or failure, run.failure_cause or cause
        run.is_stopping = True
        if not run.is_starting:
            self._delete(run, grace_s=1)

    def persist(self, what: Callable[[], None]) -> None:
        """In a worker: again and again while the API server is away or this server may not act."""
        pause = RETRY_S[0]
        while True:
            try:
                return what()
            except ApiError as error:
                if self.is_closing or not (error.status == 0 or error.status == 429 or error.status >= 500):
                    raise
                log.warning("%s", error)
            time.sleep(pause)
            pause = min(pause * 2, RETRY_S[1])

    def _run_of(
        self, record: LaunchRecord, action: Launch | Move, request: Request, member: GroupRef | None
    ) -> KubeRun:
        path = self.folder.launch(record.job_id, record.launch)
        name = launch_name(self.maker.store, record.job_id, record.launch)
        tasks = {
            f"{name}-{rank}": LocalTask(each, path / safe_name(each.name)) for rank, each in enumerate(record.tasks)
        }
        return KubeRun(action, request, member, tasks, path)

    def _find(self, job_id: str) -> KubeRun | None:
        """The last launch of a job, ended or not: from memory, else from its files."""
        if job_id in self.by_job:
            return self.by_job[job_id]
        for launch in reversed(self.folder.launches(job_id)):
            record = read_launch(self.folder.launch(job_id, launch))
            if record is None:
                continue
            run = self._run_of(record, Launch(job_id, Allocation((), 0), launch), *self.request_of(job_id))
            run.is_stopping, run.has_gone = (is_there(run, name) for name in (ASKED, STARTED))
            folders = set(os.listdir(run.path))
            for task in run.tasks:
                if task.path.name in folders:
                    task.look()
                if run.has_gone and task.phase is not Phase.GONE:
                    task.phase = Phase.RUNNING
            run.has_gone = run.has_gone or any(task.phase is Phase.GONE for task in run.tasks)
            self.by_job[job_id] = run
            return run
        return None

    def resume(self, run: KubeRun) -> None:
        """After a restart, or when it is asked for again: start what is missing, and look at the rest."""
        if not run.is_starting and not run.has_gone and not run.is_stopping and self._is_partial(run):
            self.start_again(run)
            return
        self._look_at_all(run)
        if run.is_stopping and not run.is_over and not run.is_starting:
            self._delete(run)
        self.advance(run)

    def _is_partial(self, run: KubeRun) -> bool:
        """True if some of its pods were not created or not bound before the crash."""
        seen = [self.seen.get(pod) for pod, task in run.pods.items() if task.phase is not Phase.GONE]
        return any(pod is None or not pod.spec.node_name for pod in seen)

    def start_again(self, run: KubeRun) -> None:
        """What is there already is left as it is."""
        places = [
            TaskPlace(each.role, each.index, each.node, tuple(each.gpus)) for each in (t.record for t in run.tasks)
        ]
        gang = self.maker.gang(run.request, run.job_id, run.launch, places)
        self._start(run, lambda: self.starter.start(gang))

    # Pods

    def on_pod(self, name: str, pod: KubePod | None, job: str, launch: str) -> None:
        for run in self.by_job.values() if job == "" else self._of_label(job):
            if name in run.pods and str(run.launch) == launch:
                self.look_at(run, name, pod)
                self.advance(run)

    def _of_label(self, job: str) -> list[KubeRun]:
        found = self.by_job.get(job)
        return [found] if found is not None else [run for run in self.by_job.values() if as_word(run.job_id) == job]

    def _look_at_all(self, run: KubeRun) -> None:
        """A pod that has not been seen may be there, because the watch is behind, unless it vanished or has run."""
        for name in run.pods:
            if name in self.seen or name in run.vanished or run.has_gone:
                self.look_at(run, name, self.seen.get(name))

    def look_again(self, run: KubeRun, name: str, pod: KubePod | None) -> None:
        self.look_at(run, name, pod)
        self.advance(run)

    def look_at(self, run: KubeRun, name: str, pod: KubePod | None) -> None:
        task = run.pods[name]
        if run.is_starting:  # an exit now would let the pod go, and the start would create it again
            (run.vanished.add if pod is None else run.vanished.discard)(name)
            return
        if task.phase is Phase.GONE or name in run.ending:
            return
        if pod is None:
            self._store_exit(run, name, None)
            return
        if pod.is_over or pod.is_let_go:
            self._store_exit(run, name, pod)
        elif pod.runs and task.phase is not Phase.RUNNING:
            task.phase = Phase.RUNNING
        elif pod.waiting is not None and not run.is_stopping:
            self._on_waiting(run, task, pod.waiting)

    def _on_waiting(self, run: KubeRun, task: LocalTask, waiting: WaitingContainer) -> None:
        why = f"task {task.record.name}: {waiting.reason}" + (f": {waiting.message}" if waiting.message else "")
        if cause := why_never(waiting):
            self._fail(run, why, cause)
        elif why not in run.waits:
            run.waits.add(why)
            self.reports.append(Launching(run.job_id, run.launch, why))

    def _store_exit(self, run: KubeRun, name: str, pod: KubePod | None) -> None:
        """In a worker: first the log, then the exit, then the pod may go."""
        run.ending.add(name)
        task = run.pods[name]
        has_run = task.phase is Phase.RUNNING
        record = exit_of(pod, has_run=has_run, stop_asked=is_there(run, ASKED), cause=run.kill_cause)

        def work() -> None:
            make_folder(task)
            copy = run.copies.pop(name, None)
            if copy is not None:
                copy.finish()
                copy.close()
            elif pod is not None and pod.terminated is not None:
                self.persist(lambda: copy_log(self.api, name, task.path / "log"))
            write_durable(task.path / "exit.json", record)
            self.post(self._on_exit, run, name)
            self.persist(lambda: self.starter.remove(name))

        self.pool.submit(self._guarded, work, name)

    def _guarded(self, work: Callable[[], None], name: str) -> None:
        try:
            work()
        except Exception as error:
            if not self.is_closing:
                log.warning("pod %s: %s", name, error, exc_info=not isinstance(error, ApiError))

    def _on_exit(self, run: KubeRun, name: str) -> None:
        run.pods[name].look()
        run.ending.discard(name)
        self.advance(run)

    # The end

    def _stop(self, run: KubeRun) -> None:
        if run.is_stopping or run.is_over:
            return
        run.is_stopping = True
        (run.path / ASKED).touch()
        if not run.is_starting:
            self._delete(run)

    def _delete(self, run: KubeRun, grace_s: int | None = None) -> None:
        """Ask the pods to end. A log is followed from before that, because it goes with the container."""
        grace_s = grace_s or max(math.ceil(run.request.grace_s), 1)
        for name, task in run.pods.items():
            if task.phase is Phase.GONE or name in run.ending:
                continue
            if task.phase is Phase.RUNNING:
                self.follow(run, name)
            self.pool.submit(self._guarded, self._stopper(run, name, grace_s), name)

    def _stopper(self, run: KubeRun, name: str, grace_s: int) -> Callable[[], None]:
        def stop() -> None:
            found = []
            self.persist(lambda: found.append(self.starter.stop(name, grace_s)))
            if not found[-1]:
                self.post(self.look_again, run, name, None)

        return stop

    def _kill(self, run: KubeRun, name: str, record: ExitRecord) -> None:
        """At once, without waiting for its kubelet."""
        run.ending.add(name)

        def work() -> None:
            self.persist(lambda: self.starter.remove(name))
            make_folder(run.pods[name])
            write_durable(run.pods[name].path / "exit.json", record)
            self.post(self._on_exit, run, name)

        self.pool.submit(self._guarded, work, name)

    def follow(self, run: KubeRun, name: str) -> None:
        if name not in run.copies:
            make_folder(task := run.pods[name])
            run.copies[name] = LogCopy(self.api, name, task.path / "log", lambda: name in run.ending)

    def advance(self, run: KubeRun) -> None:
        """Report what is true of a launch now, once."""
        if run.is_over:
            if not run.was_told or not run.is_ended:
                run.was_told = run.is_ended = True
                self._on_over(run)
        elif run.is_stopping:
            return
        elif any(task.exit for task in run.tasks) and (run.decided() is not None or not_run(run)):
            self._stop_rest(run)
        elif all(task.phase >= Phase.RUNNING for task in run.tasks):
            if not run.has_gone:
                run.has_gone = True
                (run.path / STARTED).touch()
            if not run.was_told:
                run.was_told = True
                self.reports.append((Moved if run.is_move else Started)(run.job_id, run.launch, run.given()))

    def _stop_rest(self, run: KubeRun) -> None:
        """Its outcome is decided, or a task could not be started: the others are to end."""
        if (bad := not_run(run)) and bad.exit is not None:
            cause = bad.exit.cause
            self._fail(run, f"task {bad.record.name} was {cause} on {bad.record.node}", cause)
            self.advance(run)
        else:
            self._stop(run)

    def _on_over(self, run: KubeRun) -> None:
        self.by_job.pop(run.job_id, None)
        following, run.next = run.next, None
        verdict = run.verdict()
        if following is not None and not (isinstance(following, Move) and by_itself(verdict)):
            self._begin(following)
        else:
            self.reports.append(verdict)

    # Nodes

    def lose(self, node: str) -> None:
        self.lost.add(node)
        self.reports.append(NodeLost(node))
        for run in list(self.by_job.values()):
            there = [
                name for name, task in run.pods.items() if task.record.node == node and task.phase is not Phase.GONE
            ]
            for name in there:
                run.kill_cause = NODE_LOST
                self._kill(run, name, ExitRecord(KILLED, NODE_LOST))
            if there:
                self._stop(run)

    def restore(self, node: str) -> None:
        self.lost.discard(node)
        self.reports.append(NodeBack(node))

    def sweep(self, known: set[tuple[str, int]]) -> None:
        """Pods of this store that the server does not know are killed without a report; those whose end was stored
        before a crash may go."""
        labels = {(as_word(job_id), str(launch)) for job_id, launch in known}
        stored = functools.cache(self._stored)
        for name, pod in list(self.seen.items()):
            launch, rank = pod.metadata.labels.get(LAUNCH, "0"), name.rpartition("-")[2]
            is_known = (pod.metadata.labels.get(JOB, ""), launch) in labels
            if not is_known or int(rank) in stored(pod.metadata.annotations.get("skep/job-id", ""), int(launch)):
                remove = functools.partial(self.starter.remove, name)
                self.pool.submit(self._guarded, functools.partial(self.persist, remove), name)

    def _stored(self, job_id: str, launch: int) -> set[int]:
        """The ranks of a launch whose ends are stored."""
        path = self.folder.launch(job_id, launch)
        record, folders = read_launch(path), set(os.listdir(path)) if path.exists() else set()
        names = [safe_name(task.name) for task in record.tasks] if record is not None else []
        ends = ((rank, f"{path}/{name}/exit.json") for rank, name in enumerate(names) if name in folders)
        return {rank for rank, end in ends if os.path.exists(end)}


def is_there(run: KubeRun, name: str) -> bool:
    """A file of the launch."""
    return (run.path / name).exists()


def make_folder(task: LocalTask) -> None:
    os.makedirs(task.path, mode=0o700, exist_ok=True)


def by_itself(verdict: Report) -> bool:
    return isinstance(verdict, LaunchFailed) or (isinstance(verdict, Exited) and not verdict.was_stopped)


def not_run(run: KubeRun) -> LocalTask | None:
    """A task that ended without having run."""
    return next((task for task in run.tasks if task.exit is not None and not task.exit.ran), None)
