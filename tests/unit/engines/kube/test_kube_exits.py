"""What is told of a pod that has ended."""

from __future__ import annotations

import pytest

from skep.engines.kube.objects import ContainerState, ContainerStatus, KubePod, ObjectMeta, PodStatus, Terminated
from skep.engines.kube.run import exit_of

GRACE = {"deletion_timestamp": "2026-01-01T10:00:30Z", "deletion_grace_period_seconds": 30}
"""Deleted at 10:00:00."""


def pod(code: int, at: str, *, reason: str = "", **deletion) -> KubePod:
    ended = Terminated(code, reason, finished_at=f"2026-01-01T{at}Z")
    status = PodStatus("Failed", container_statuses=[ContainerStatus("task", ContainerState(ended))])
    return KubePod(ObjectMeta("p", **deletion), status=status)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (pod(3, "10:00:00"), (3, "")),
        (pod(3, "09:59:59", **GRACE), (3, "")),
        (pod(3, "10:00:05", **GRACE), (3, "deleted")),
        (pod(0, "09:59:59", **GRACE), (0, "")),
        (pod(0, "10:00:05", **GRACE), (143, "deleted")),
        (pod(137, "10:00:05", reason="OOMKilled", **GRACE), (137, "oom")),
        (None, (137, "deleted")),
    ],
)
def test_a_pod_that_others_deleted_says_so(ended: KubePod | None, told: tuple[int, str]) -> None:
    found = exit_of(ended, has_run=True, stop_asked=False)
    assert (found.code, found.cause) == told


def test_a_pod_that_we_deleted_was_not_deleted_by_others() -> None:
    found = exit_of(pod(0, "10:00:05", **GRACE), has_run=True, stop_asked=True)
    assert (found.code, found.cause, found.stop_asked) == (0, "", True)
