"""A launch on Kubernetes: its files are those of the local engine, its processes are pods."""

from __future__ import annotations

import datetime
import signal
from pathlib import Path

from skep.core.actions import Launch, Move
from skep.core.model import GroupRef
from skep.engines.kube.copy_log import LogCopy
from skep.engines.kube.objects import KubePod, Terminated, WaitingContainer
from skep.engines.local.folder import ExitRecord
from skep.engines.local.run import LaunchRun, LocalTask
from skep.jobs.request import Request

KILLED, TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM
DELETED = "deleted"
NOT_PULLED = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
NOT_MADE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


class KubeRun(LaunchRun):
    """`pods` maps the name of a pod to its task."""

    def __init__(
        self,
        action: Launch | Move,
        request: Request,
        member: GroupRef | None,
        tasks: dict[str, LocalTask],
        path: Path,
    ) -> None:
        super().__init__(action, request, member, list(tasks.values()))
        self.pods, self.path = tasks, path
        self.pod_of = {task.record.name: pod for pod, task in tasks.items()}
        self.copies: dict[str, LogCopy] = {}
        """By pod, logs that are being followed."""
        self.ending: set[str] = set()
        """Pods whose exit is being stored."""
        self.waits: set[str] = set()
        """What was reported about its start."""
        self.is_ended = False
        """True if its end was reported."""
        self.is_starting = False
        """True while its pods are created and bound."""
        self.vanished: set[str] = set()
        """Pods that other clients deleted in that time."""


def exit_of(pod: KubePod | None, *, has_run: bool, stop_asked: bool, cause: str = "") -> ExitRecord:
    """How a task ended. A pod that is gone was deleted by force."""
    ended = pod.terminated if pod is not None else None
    if pod is None or ended is None:
        cause = cause or ("" if stop_asked else cause_without_exit(pod))
        return ExitRecord(KILLED, cause, ran=has_run, stop_asked=stop_asked)
    cause = cause or cause_of(ended, pod, stop_asked=stop_asked)
    code = ended.exit_code if 0 <= ended.exit_code <= 255 else KILLED
    if cause == DELETED and code == 0:
        code = TERMINATED  # It left because it was asked to, not because it was done.
    return ExitRecord(code, cause, stop_asked=stop_asked, seconds=seconds_of(ended))


def cause_of(ended: Terminated, pod: KubePod, *, stop_asked: bool) -> str:
    if ended.reason == "OOMKilled":
        return "oom"
    if pod.status.reason == "Evicted":
        return "evicted"
    return DELETED if not stop_asked and is_deleted_before(pod, ended.finished_at) else ""


def is_deleted_before(pod: KubePod, ended_at: str | None) -> bool:
    """True if another client deleted the pod before its container ended. Its timestamp includes its grace."""
    about = pod.metadata
    if about.deletion_timestamp is None or ended_at is None:
        return about.deletion_timestamp is not None
    grace = datetime.timedelta(seconds=about.deletion_grace_period_seconds or 0)
    return (
        datetime.datetime.fromisoformat(ended_at) >= datetime.datetime.fromisoformat(about.deletion_timestamp) - grace
    )


def cause_without_exit(pod: KubePod | None) -> str:
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return DELETED
    return "evicted" if pod.status.reason == "Evicted" else "rejected"


def seconds_of(ended: Terminated) -> float:
    if not ended.started_at or not ended.finished_at:
        return 0.0
    began, done = (datetime.datetime.fromisoformat(text) for text in (ended.started_at, ended.finished_at))
    return max((done - began).total_seconds(), 0.0)


def why_never(waiting: WaitingContainer) -> str:
    """The cause of `LaunchFailed` if its container will not start without help; empty: it may."""
    return "image" if waiting.reason in NOT_PULLED else "config" if waiting.reason in NOT_MADE else ""
