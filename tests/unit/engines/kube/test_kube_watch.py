"""List and watch."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from skep.engines.kube.objects import KubePod
from skep.engines.kube.watch import KubeWatch

BOOKMARK = {"kind": "Pod", "metadata": {"resourceVersion": "7"}, "spec": {"containers": None}, "status": {}}
"""As API servers send it."""
EXPIRED = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired"}


def pod(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": {"containers": [{"name": "task"}]}}


class Script:
    """An API server that lists these pods and then sends these lines, one stream after the other."""

    def __init__(self, *streams: list[tuple[str, dict[str, Any]]]) -> None:
        self.streams = iter(streams)
        self.versions: list[str] = []
        self.is_done = threading.Event()

    def get(self, path: str, **query: Any) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": "5"}, "items": [pod("a", "3")]}).encode()

    def stream(self, path: str, **query: Any) -> Script:
        self.versions.append(query["resourceVersion"])
        return self

    def lines(self) -> list[bytes]:
        found = next(self.streams, None)
        if found is None:
            self.is_done.set()
            threading.Event().wait(0.05)
        return [json.dumps({"type": kind, "object": about}).encode() for kind, about in found or []]

    def close(self) -> None: ...


def watch(*streams: list[tuple[str, dict[str, Any]]]) -> tuple[Script, KubeWatch[KubePod], list[str]]:
    script, seen = Script(*streams), []

    def on_change(before: KubePod | None, now: KubePod | None) -> None:
        seen.append(now.metadata.name if now else f"-{before.metadata.name}")  # type: ignore[union-attr]

    made = KubeWatch(script, "/pods", KubePod, on_change)  # type: ignore[arg-type]
    made.start()
    assert script.is_done.wait(30.0)
    made.close()
    return script, made, seen


def test_a_bookmark_is_where_the_next_watch_begins() -> None:
    script, made, seen = watch([("ADDED", pod("b", "6")), ("BOOKMARK", BOOKMARK)], [("DELETED", pod("b", "8"))])
    assert script.versions[:3] == ["5", "7", "8"]
    assert made.lists == 1
    assert seen == ["a", "b", "-b"]
    assert list(made.items) == ["a"]


def test_a_version_that_is_gone_means_another_list(caplog: pytest.LogCaptureFixture) -> None:
    script, made, seen = watch([("MODIFIED", pod("b", "6")), ("ERROR", EXPIRED)])
    assert script.versions[:2] == ["5", "5"]
    assert made.lists == 2
    assert not caplog.records
    assert seen == ["a", "b", "-b"]
