"""The engine that runs jobs as pods: Skep decides, Kubernetes runs.

One thread does everything in order: commands and changes of pods (a queue). The watches, the renewal of the Lease and a
pool of workers, which make the requests, only post to it. The work itself is in `runs.py`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from skep.core.actions import Action, Setting
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import InputError, NotFound
from skep.core.model import GroupRef
from skep.core.ports import Capability, TaskEnvironment, TaskStatus, Wanted
from skep.core.reports import Fenced, Looked, Progressed, Report
from skep.engines.kube.api import Api, ApiError
from skep.engines.kube.credentials import find_credentials
from skep.engines.kube.exec import ERROR, STDERR, ExecStatus, exec_in
from skep.engines.kube.gang import GONE, GangStarter
from skep.engines.kube.lease import KubeFence
from skep.engines.kube.nodes import KubeNodes, node_spec
from skep.engines.kube.objects import ForeignPod, KubeNode, KubePod, NodeList
from skep.engines.kube.pods import CONTAINER, JOB, LAUNCH, STORE, PodMaker
from skep.engines.kube.reports import ReportListener, ReportTokens
from skep.engines.kube.runs import KubeRuns, make_folder
from skep.engines.kube.settings import VISIBLE, KubeSettings
from skep.engines.kube.watch import KubeWatch
from skep.engines.local.folder import Folder, log_files
from skep.engines.local.job_files import StoredJobs, as_known
from skep.engines.local.run import Phase
from skep.jobs.request import Request

log = logging.getLogger(__name__)
Found = TypeVar("Found")
NOT_RUN = 126
"""The exit code of a command that could not be run."""
LOOK_S = 30.0
"""The most that `look` waits for exits to be stored."""


class KubeEngine(StoredJobs):
    name = "kubernetes"

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        request_of: Callable[[str], tuple[Request, GroupRef | None]],
        tell: Callable[[list[Report]], None],
        settings: KubeSettings,
        store: str,
        *,
        is_new: bool = False,
    ) -> None:
        """`store` is the id of the server's store. Errors that a person can correct are raised as `InputError`."""
        self.capabilities = capabilities_of(settings)
        self.folder = Folder(folder.absolute() / "kubernetes")
        self.folder.jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.tell = tell
        self.reports: ReportListener | None = None
        self.api = Api(find_credentials(settings.kubeconfig, settings.context, settings.namespace))
        self._todo: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()
        self.pods: KubeWatch[KubePod] = KubeWatch(
            self.api, self.api.of("pods"), KubePod, self._on_pod, labelSelector=f"{STORE}={store}"
        )
        tokens = ReportTokens(self.folder.root)
        maker = PodMaker(settings, store, self.api.namespace, tokens)
        starter = GangStarter(self.api, self._allow)
        self.runs = KubeRuns(self.folder, cluster, request_of, maker, starter, self.pods.items, self._ask)
        self.health = KubeNodes(settings.unreachable_s, self._ask, self.runs)
        self.nodes: KubeWatch[KubeNode] = KubeWatch(
            self.api, "/api/v1/nodes", KubeNode, self.health.on_node, may_lag=True
        )
        self.others: KubeWatch[ForeignPod] = KubeWatch(
            self.api,
            "/api/v1/pods",
            ForeignPod,
            self.health.on_pod,
            is_everywhere=True,
            may_lag=True,
            labelSelector=f"{STORE}!={store}",
            fieldSelector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
        )
        try:
            self.fence = connect(self.api, lambda: self._open(store, is_new))
        except InputError:
            self._close_all()
            raise
        self.reports = listen(settings.reports, tokens, self._folder_of, self._on_progress)
        self._is_open = True
        self._thread = threading.Thread(target=self._work, name="skep-kube-engine", daemon=True)
        self._thread.start()

    def _open(self, store: str, is_new: bool) -> KubeFence:
        self.api.get(f"/api/v1/namespaces/{self.api.namespace}/pods", limit=1)
        fence = KubeFence(self.api, store, self._on_lost, is_new=is_new)
        own = self.runs.pool.submit(self.pods.start)
        self.others.start()
        self.nodes.start()
        own.result()
        return fence

    @property
    def watches(self) -> list[KubeWatch[Any]]:
        """Pods of others before nodes, so that a node joins with what they use there."""
        return [self.pods, self.others, self.nodes]

    # Commands; any thread.

    def last_epoch(self) -> int:
        return self.fence.newest()

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        self.fence.take(epoch)
        self._ask(self._take_up, wanted)

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
        self._ask(self._use_cluster, cluster)

    def look(self, job_ids: Collection[str]) -> None:
        """The watch reports everything; its pods are asked for what it may have missed."""
        self.runs.pool.submit(self._look, list(job_ids))

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        """Nothing to do: an exit is in the files of its launch before its pod is removed."""

    def forget(self, job_id: str) -> None:
        if job_id not in self.runs.by_job:
            self.folder.put_aside(job_id)
            threading.Thread(target=self.folder.remove_aside, name="skep-kube-remove", daemon=True).start()

    def problems(self) -> list[str]:
        found = [f"Kubernetes: {watch.problem}" for watch in self.watches if watch.problem]
        if self.fence.epoch and not self.fence.may_act():
            found.append("Kubernetes: the Lease could not be renewed; nothing is started or stopped")
        return found

    def make_room(self) -> bool:
        return False

    def close(self) -> None:
        self.runs.is_closing = True
        self._ask(setattr, self, "_is_open", False)
        self._thread.join()
        self.fence.release()
        self._close_all()

    def _close_all(self) -> None:
        if self.reports is not None:
            self.reports.close()
        for watch in self.watches:
            watch.close()
        self.health.close()
        for run in self.runs.by_job.values():
            for copy in list(run.copies.values()):
                copy.close()
        self.runs.pool.shutdown(wait=True, cancel_futures=True)
        self.api.close()

    # Queries

    def share(self, job_id: str) -> dict[str, Setting]:
        return {}

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        return TaskEnvironment({}, "", self._task_path(job_id, task, launch).name, is_here=False)

    def run_beside(self, job_id: str, task: str, argv: list[str]) -> Iterator[tuple[int, bytes]]:
        """In the container of a task that runs."""
        name = self._task_path(job_id, task, 0).name
        run = self.runs.by_job.get(job_id)
        pod = run.pod_of.get(name, "") if run is not None else ""
        if run is None or not pod or run.pods[pod].phase is not Phase.RUNNING:
            raise NotFound(f"job {job_id}: task {name} does not run now")
        return self._pieces(pod, argv)

    def _pieces(self, pod: str, argv: list[str]) -> Iterator[tuple[int, bytes]]:
        try:
            for channel, content in exec_in(self.api, pod, CONTAINER, argv):
                if channel == ERROR:
                    status = msgspec.json.decode(content, type=ExecStatus)
                    if status.code is None:
                        yield STDERR, f"{status.message}\n".encode()
                    yield 0, str(NOT_RUN if status.code is None else status.code).encode()
                else:
                    yield channel, content
        except ApiError as error:
            yield STDERR, f"{error}\n".encode()
            yield 0, str(NOT_RUN).encode()

    def tasks(self, job_id: str) -> list[TaskStatus]:
        """That a task runs is in no file."""
        run = self.runs.by_job.get(job_id)
        return super().tasks(job_id) if run is None else [as_known(task, task.state) for task in run.tasks]

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        return {}

    def disk_used(self) -> None:
        return None

    def _log_files(self, job_id: str, task: str, launch: int) -> list[Path]:
        """The log of a pod that runs is followed as soon as a client reads it."""
        try:
            path = self._task_path(job_id, task, launch)
        except NotFound:
            return []
        run = self.runs.by_job.get(job_id)
        if run is not None and path.parent.name == str(run.launch):
            self._ask(self._follow, job_id, run.launch, path.name)
        return log_files(path)

    def _folder_of(self, job_id: str, launch: int, task: str) -> Path | None:
        """Of a task that runs; for any thread."""
        run = self.runs.by_job.get(job_id)
        if run is None or run.launch != launch or task not in run.pod_of:
            return None
        make_folder(found := run.pods[run.pod_of[task]])
        return found.own

    def _on_progress(self, job_id: str, launch: int, values: dict[str, Setting]) -> None:
        self._ask(self.runs.reports.append, Progressed(job_id, launch, values))

    def _follow(self, job_id: str, launch: int, task: str) -> None:
        run = self.runs.by_job.get(job_id)
        if run is not None and run.launch == launch:
            name = run.pod_of[task]
            if run.pods[name].phase is Phase.RUNNING and name not in run.ending:
                self.runs.follow(run, name)

    # The thread

    def _ask(self, what: Callable[..., None], *args: Any) -> None:
        self._todo.put((what, args))

    def _work(self) -> None:
        while self._is_open:
            todo = self._todo.get()
            while todo is not None:
                self._try(*todo)
                todo = self._todo.get_nowait() if not self._todo.empty() else None
            reports, self.runs.reports = self.runs.reports, []
            if reports:
                self._try(self.tell, (reports,))

    def _try(self, what: Callable[..., None], args: tuple[Any, ...]) -> None:
        """An error with one job must not stop the engine."""
        try:
            what(*args)
        except Exception:
            log.exception("the Kubernetes engine failed at one job and continues: %s", args)

    def _use_cluster(self, cluster: Cluster) -> None:
        new = cluster.by_name.keys() - self.runs.cluster.by_name.keys()
        self.runs.cluster = cluster
        self.health.tell_all(sorted(new))

    def _take_up(self, wanted: Wanted) -> None:
        self.runs.lost |= wanted.lost  # nothing is launched there
        self.runs.sweep(wanted.known)
        self._act(wanted.actions)
        for node in sorted(wanted.lost):
            self.runs.lose(node)
        self.health.begin(wanted.lost)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            self._try(self.runs.act, (action,))

    def _look(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            run = self.runs.by_job.get(job_id)
            for name in run.pods if run is not None else ():
                try:
                    pod = msgspec.json.decode(self.api.get(self.api.of("pods", name)), type=KubePod)
                except ApiError as error:
                    if error.status != GONE:
                        log.warning("%s", error)
                        continue
                    pod = None
                self._ask(self.runs.look_again, run, name, pod)
        self._ask(self._looked, job_ids, time.monotonic())

    def _looked(self, job_ids: list[str], began_s: float) -> None:
        """Behind the exits that are being stored."""
        runs = [run for job_id in job_ids if (run := self.runs.by_job.get(job_id)) is not None]
        if any(run.ending for run in runs) and time.monotonic() - began_s < LOOK_S:
            timer = threading.Timer(0.05, self._ask, (self._looked, job_ids, began_s))
            timer.daemon = True
            timer.start()
        else:
            self.runs.reports.append(Looked())

    def _on_pod(self, before: KubePod | None, pod: KubePod | None) -> None:
        if pod is not None and pod.is_untouched:
            return
        about = (pod or before).metadata  # type: ignore[union-attr]
        self._ask(self.runs.on_pod, about.name, pod, about.labels.get(JOB, ""), about.labels.get(LAUNCH, ""))

    def _on_lost(self, epoch: int) -> None:
        self.runs.is_closing = True
        self._ask(self.runs.reports.append, Fenced(epoch))

    def _allow(self) -> None:
        if not self.fence.may_act():
            raise ApiError(0, "NotHolder", "this server does not hold the Lease now")


def capabilities_of(settings: KubeSettings) -> frozenset[Capability]:
    """Which GPUs a task has is known only if Skep chooses them."""
    exact = {Capability.EXACT_GPUS} if settings.gpus == VISIBLE else set()
    usual = {Capability.MIGRATE, Capability.RESIZE, Capability.LOGS, Capability.IMAGES, Capability.NODES}
    told = (Capability.PROGRESS, Capability.CHECKPOINT, Capability.TUNE) if settings.reports else ()
    return frozenset({*usual, Capability.EXEC, *exact, *told})


def listen(
    url: str,
    tokens: ReportTokens,
    folder_of: Callable[[str, int, str], Path | None],
    tell: Callable[[str, int, dict[str, Setting]], None],
) -> ReportListener | None:
    try:
        return ReportListener(url, tokens, folder_of, tell) if url else None
    except OSError as error:
        raise InputError(f"kubernetes.reports: cannot listen for {url}: {error.strerror}") from None


def find_nodes(settings: KubeSettings) -> list[NodeSpec]:
    """The nodes that there are now."""
    api = Api(find_credentials(settings.kubeconfig, settings.context, settings.namespace))
    with contextlib.closing(api):
        text = connect(api, lambda: api.get("/api/v1/nodes", resourceVersion=0))
    found = msgspec.json.decode(text, type=NodeList).items
    return [node_spec(node) for node in found]


def connect(api: Api, first: Callable[[], Found]) -> Found:
    """The first requests; what an admin must know is one line."""
    try:
        if api.namespace != "default":
            check_namespace(api)
        return first()
    except ApiError as error:
        if error.status == 0:
            raise InputError(str(error), hint="is the address in the kubeconfig right, and the server up?") from None
        if error.status == 401:
            raise InputError(f"the API server {api.credentials.url} does not accept these credentials") from None
        if error.status == 403:
            raise InputError(
                f"missing rights: {error}", hint="`skep kube manifests` prints the roles it needs"
            ) from None
        raise InputError(f"the API server {api.credentials.url}: {error}") from None


def check_namespace(api: Api) -> None:
    try:
        api.get(f"/api/v1/namespaces/{api.namespace}")
    except ApiError as error:
        if error.status == 404:
            raise InputError(
                f"there is no namespace {api.namespace!r}", hint=f"kubectl create namespace {api.namespace}"
            ) from None
        if error.status != 403:
            raise
