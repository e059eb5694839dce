"""A gang is created whole, then bound whole."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.core.errors import SkepError
from skep.engines.kube.api import JSON, MERGE, Api, ApiError
from skep.engines.kube.objects import KubePod
from skep.engines.kube.pods import GangManifests, Manifest

CONFLICT, GONE = 409, 404
SHORTAGE = "shortage"


class GangFailed(SkepError):
    """Some of its pods were not created or not bound; the caller deletes the others. `cause` is that of
    `LaunchFailed`."""

    def __init__(self, reason: str, cause: str) -> None:
        super().__init__(reason)
        self.cause = cause


class GangStarter:
    """For any thread. `allow` raises if this server may not act now."""

    def __init__(self, api: Api, allow: Callable[[], None]) -> None:
        self.api, self.allow = api, allow

    def start(self, gang: GangManifests) -> None:
        """What exists already is this launch, asked for before: names are made of job and launch."""
        try:
            first = self._create(gang.pods[0])
            for pod in gang.pods[1:]:
                self._post("pods", pod)
            for kind, manifest in (("services", gang.service), ("secrets", gang.secret)):
                if manifest is not None:
                    self._post(kind, owned_by(manifest, first))
            for pod, node in zip(gang.pods, gang.nodes, strict=True):
                self._bind(pod["metadata"]["name"], node)
        except ApiError as error:
            if error.status == 0:
                raise
            raise GangFailed(str(error), cause_of(error)) from None

    def remove(self, name: str) -> None:
        """Let the pod go, without waiting for its kubelet."""
        path = self.api.of("pods", name)
        for method, body in (("PATCH", {"metadata": {"finalizers": None}}), ("DELETE", {"gracePeriodSeconds": 0})):
            self.allow()
            try:
                self.api.request(method, path, body, MERGE if method == "PATCH" else JSON)
            except ApiError as error:
                if error.status != GONE:
                    raise

    def stop(self, name: str, grace_s: int | None) -> bool:
        """False if there is no such pod."""
        self.allow()
        try:
            self.api.delete(self.api.of("pods", name), grace_s)
        except ApiError as error:
            if error.status == GONE:
                return False
            raise
        return True

    def _create(self, pod: Manifest) -> KubePod:
        name = pod["metadata"]["name"]
        if (made := self._post("pods", pod)) is not None:
            return msgspec.json.decode(made, type=KubePod)
        return msgspec.json.decode(self.api.get(self.api.of("pods", name)), type=KubePod)

    def _post(self, kind: str, manifest: Manifest) -> bytes | None:
        """None if it exists."""
        self.allow()
        try:
            return self.api.post(self.api.of(kind), manifest)
        except ApiError as error:
            if error.status == CONFLICT and error.reason == "AlreadyExists":
                return None
            raise

    def _bind(self, name: str, node: str) -> None:
        """A second binding is refused: that is right if the first was to the same node."""
        self.allow()
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        try:
            self.api.post(f"{self.api.of('pods', name)}/binding", {"metadata": {"name": name}, "target": target})
        except ApiError as error:
            if error.status not in (CONFLICT, GONE):
                raise
            if error.status == GONE or not self._is_on(name, node):
                raise ApiError(CONFLICT, "Bound", f"pod {name} was bound or deleted by another client") from None

    def _is_on(self, name: str, node: str) -> bool:
        found = msgspec.json.decode(self.api.get(self.api.of("pods", name)), type=KubePod)
        return found.spec.node_name == node and not found.metadata.deletion_timestamp


def owned_by(manifest: Manifest, owner: KubePod) -> Manifest:
    """Kubernetes deletes it with its owner."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.metadata.name, "uid": owner.metadata.uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def cause_of(error: ApiError) -> str:
    """A quota, too many requests and conflicts may pass; what the API server calls invalid will not."""
    may_pass = error.status in (409, 429) or error.status >= 500 or "exceeded quota" in str(error)
    return SHORTAGE if may_pass else ""
