"""Which server may act: the holder of a Lease in the namespace. Its transitions are the epoch of the server.

The holder renews it every few seconds and acts only while its last renewal is younger than `ACT_S` by the monotonic
clock; another server takes over when it has seen no renewal for `LEASE_S`. A server that was stopped and continues
finds its renewal too old before it acts. The id of its store is on the Lease: another store is refused.
"""

from __future__ import annotations

import datetime
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from skep.core.errors import InputError
from skep.core.ports import StaleEpoch
from skep.engines.kube.api import Api, ApiError
from skep.engines.kube.objects import Lease
from skep.engines.kube.pods import STORE

NAME = "skep"
VERSION = "coordination.k8s.io/v1"
LEASE_S, ACT_S, RENEW_S = 15.0, 10.0, 2.0

log = logging.getLogger(__name__)


def identity() -> str:
    """This process. Another one on the same machine can tell whether it still lives."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    names = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{socket.gethostname()}_{boot}_{names}_{os.getpid()}_{os.urandom(3).hex()}"


def is_dead(holder: str) -> bool:
    """True if that process was one of this machine and is gone."""
    ours, theirs = identity().split("_"), holder.split("_")
    if len(theirs) != len(ours) or theirs[:-2] != ours[:-2] or not theirs[-2].isdigit():
        return False
    return not Path(f"/proc/{theirs[-2]}").exists()


class KubeFence:
    """`on_lost(epoch)` is called once, from the thread of the renewal, when another server has taken over."""

    def __init__(self, api: Api, store: str, on_lost: Callable[[int], None], *, is_new: bool = False) -> None:
        self.api, self.store, self.on_lost, self.is_new = api, store, on_lost, is_new
        self.path = api.of("leases", NAME, VERSION)
        self.holder = identity()
        self.epoch = 0
        """Of our server; 0 while we have not taken the Lease."""
        self._newest = 0
        self._renewed_s = -ACT_S
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew_all, name="skep-kube-lease", daemon=True)
        found = self._read()
        self._check_store(found)
        self._newest = transitions(found)

    def newest(self) -> int:
        """The latest epoch. While we hold the Lease it is ours."""
        if not self.may_act():
            try:
                self._newest = max(self._newest, transitions(self._read()))
            except ApiError as error:
                log.warning("the Lease cannot be read: %s", error)
        return max(self._newest, self.epoch)

    def check(self, epoch: int) -> None:
        if epoch < (newer := self.newest()):
            raise StaleEpoch(epoch, newer)

    def may_act(self) -> bool:
        return self.epoch > 0 and time.monotonic() - self._renewed_s < ACT_S

    def take(self, epoch: int) -> None:
        """Become the holder. Waits until the Lease of another server has expired."""
        self.check(epoch)
        seen, since = "", time.monotonic()
        while True:
            began = time.monotonic()
            found = self._read()
            self._check_store(found)
            if epoch < transitions(found) or (epoch == transitions(found) and not self._is_ours(found)):
                raise StaleEpoch(epoch, transitions(found))
            if found is not None and found.spec.renew_time != seen:
                seen, since = found.spec.renew_time or "", began
            if self._is_free(found) or began - since > LEASE_S:
                if self._write(found, epoch):
                    break
                continue
            time.sleep(0.5)
        self._renewed_s, self.epoch = began, epoch
        if not self._thread.is_alive():
            self._thread.start()

    def release(self) -> None:
        """The next server need not wait."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        if self.epoch:
            try:
                found = self._read()
                if self._is_ours(found):
                    self._write(found, self.epoch, holder="")
            except ApiError as error:
                log.warning("the Lease was not released: %s", error)
        self.epoch = 0

    def _is_free(self, found: Lease | None) -> bool:
        holder = found.spec.holder_identity if found is not None else None
        return not holder or holder == self.holder or is_dead(holder)

    def _is_ours(self, found: Lease | None) -> bool:
        return found is not None and found.spec.holder_identity == self.holder

    def _check_store(self, found: Lease | None) -> None:
        theirs = found.metadata.annotations.get(STORE, "") if found is not None else ""
        if theirs and theirs != self.store and not self.is_new:
            raise InputError(
                f"namespace {self.api.namespace} belongs to another Skep store ({theirs}; this one is {self.store})",
                hint="use its data folder, another namespace, or --new, which leaves the pods of the other store alone",
            )

    def _read(self) -> Lease | None:
        try:
            return msgspec.json.decode(self.api.get(self.path), type=Lease)
        except ApiError as error:
            if error.status == 404 and error.reason == "NotFound":
                return None
            raise

    def _write(self, found: Lease | None, epoch: int, holder: str | None = None) -> bool:
        """False if another server was faster."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251  for people; never compared
        metadata: dict[str, Any] = {"name": NAME, "annotations": {STORE: self.store}}
        if found is not None:
            metadata["resourceVersion"] = found.metadata.resource_version
        spec = {
            "holderIdentity": self.holder if holder is None else holder,
            "leaseDurationSeconds": int(LEASE_S),
            "leaseTransitions": epoch,
            "renewTime": now,
        }
        body = {"apiVersion": VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            if found is None:
                self.api.post(self.api.of("leases", version=VERSION), body)
            else:
                self.api.put(self.path, body)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    def _renew_all(self) -> None:
        while not self._closing.wait(RENEW_S):
            try:
                if not self._renew():
                    return
            except ApiError as error:
                log.warning("the Lease was not renewed: %s", error)

    def _renew(self) -> bool:
        """False if another server has taken over."""
        began = time.monotonic()
        found = self._read()
        if not self._is_ours(found):
            self._newest = max(self._newest, transitions(found))
            self.epoch = 0
            self.on_lost(self._newest)
            return False
        if self._write(found, self.epoch):
            self._renewed_s = began
        return True


def transitions(found: Lease | None) -> int:
    return (found.spec.lease_transitions or 0) if found is not None else 0
