"""A launch on Kubernetes: its files are those of the local engine, its processes are pods."""

from __future__ import annotations

import datetime
import signal

from skep.core.actions import Launch, Move
from skep.core.model import GroupRef
from skep.engines.kube.copy_log import LogCopy
from skep.engines.kube.objects import KubePod, Terminated, WaitingContainer
from skep.engines.local.folder import ExitRecord
from skep.engines.local.run import LaunchRun, LocalTask
from skep.jobs.request import Request

KILLED = 128 + signal.SIGKILL
NOT_PULLED = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
NOT_MADE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


class KubeRun(LaunchRun):
    """`pods` maps the name of a pod to its task."""

    def __init__(
        self, action: Launch | Move, request: Request, member: GroupRef | None, tasks: dict[str, LocalTask]
    ) -> None:
        super().__init__(action, request, member, list(tasks.values()))
        self.pods = tasks
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


def exit_of(pod: KubePod | None, *, has_run: bool, stop_asked: bool, cause: str = "") -> ExitRecord:
    """How a task ended. A pod that is gone was deleted by force."""
    ended = pod.terminated if pod is not None else None
    if ended is None:
        return ExitRecord(KILLED, cause or cause_without_exit(pod), ran=has_run, stop_asked=stop_asked)
    cause = cause or cause_of(ended, pod)
    code = ended.exit_code if 0 <= ended.exit_code <= 255 else KILLED
    return ExitRecord(code, cause, stop_asked=stop_asked, seconds=seconds_of(ended))


def cause_of(ended: Terminated, pod: KubePod | None) -> str:
    if ended.reason == "OOMKilled":
        return "oom"
    return "evicted" if pod is not None and pod.status.reason == "Evicted" else ""


def cause_without_exit(pod: KubePod | None) -> str:
    if pod is None:
        return "deleted"
    return "evicted" if pod.status.reason == "Evicted" else "rejected"


def seconds_of(ended: Terminated) -> float:
    if not ended.started_at or not ended.finished_at:
        return 0.0
    began, done = (datetime.datetime.fromisoformat(text) for text in (ended.started_at, ended.finished_at))
    return max((done - began).total_seconds(), 0.0)


def why_never(waiting: WaitingContainer) -> str:
    """The cause of `LaunchFailed` if its container will not start without help; empty: it may."""
    return "image" if waiting.reason in NOT_PULLED else "config" if waiting.reason in NOT_MADE else ""
