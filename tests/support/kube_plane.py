"""A Kubernetes control plane for tests: etcd and the API server, on loopback, with client certificates, RBAC and an
audit log."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from skep.engines.kube.api import Api, ApiError
from skep.engines.kube.credentials import of_file

ROOT = Path(__file__).parents[2]
READY_S = 120.0
HOW = "Kubernetes binaries are missing; `scripts/kube-assets` makes them"
ADMIN, MASTERS = "admin", "system:masters"
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


def assets(*more: str) -> Path | None:
    """The folder of the binaries; None if they were not built on this machine."""
    found = subprocess.run([ROOT / "scripts" / "kube-assets", "--have", *more], capture_output=True, text=True)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Authority:
    """Certificates, made with the openssl program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._openssl(
            "req", "-x509", "-nodes", "-days", "30", *self._key("ca"), "-subj", "/CN=skep-tests", "-out", "ca.crt"
        )

    def issue(self, name: str, group: str = "", *, serves: bool = False) -> None:
        """NAME.crt and NAME.key for a user of this group, or for a server on 127.0.0.1."""
        subject = f"/O={group}/CN={name}" if group else f"/CN={name}"
        self._openssl("req", "-new", "-nodes", *self._key(name), "-subj", subject, "-out", f"{name}.csr")
        use = "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1" if serves else "extendedKeyUsage=clientAuth"
        (self.folder / f"{name}.ext").write_text(use)
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext", "-days", "30")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")

    def _key(self, name: str) -> list[str]:
        return ["-newkey", "rsa:2048", "-keyout", f"{name}.key"]

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


class ControlPlane:
    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self.folder = binaries, folder
        self.audit_log = folder / "audit.log"
        self.url = f"https://127.0.0.1:{free_port()}"
        self.authority = Authority(folder / "pki")
        self.authority.issue("server", serves=True)
        self.authority.issue(ADMIN, MASTERS)
        (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.api = Api(of_file(self.kubeconfig(ADMIN), "", "default"))
        self.count = 0

    def start(self) -> None:
        peer, client = free_port(), free_port()
        self._run(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--listen-client-urls", f"http://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
        )
        self.etcd = f"http://127.0.0.1:{client}"
        self.start_server()

    def start_server(self) -> None:
        pki = self.folder / "pki"
        self.server = self._run(
            "kube-apiserver",
            *(
                f"--etcd-servers={self.etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.url.rpartition(':')[2]}",
            ),
            *(f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key"),
            *(f"--client-ca-file={pki}/ca.crt", "--authorization-mode=Node,RBAC", "--allow-privileged=true"),
            *(f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key"),
            "--kubelet-preferred-address-types=InternalIP",
            *("--service-account-issuer=https://skep.test", f"--service-account-key-file={pki}/ca.key"),
            *(f"--service-account-signing-key-file={pki}/ca.key", "--service-cluster-ip-range=10.0.0.0/24"),
            # There is no controller manager that makes the service account of a namespace.
            *("--disable-admission-plugins=ServiceAccount", "--max-requests-inflight=2000"),
            *(f"--audit-log-path={self.audit_log}", f"--audit-policy-file={self.folder}/audit.yaml"),
        )
        by_s = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(ApiError):
                if self.api.get("/readyz") == b"ok" and self.api.get("/api/v1/namespaces/default"):
                    return
            if self.server.poll() is not None or time.monotonic() > by_s:
                raise RuntimeError((self.folder / "kube-apiserver.log").read_text()[-3000:])
            time.sleep(0.1)

    def start_controllers(self) -> None:
        """The controller manager, which notices sooner than usual that a node is silent, and the default scheduler."""
        pki, common = (
            self.folder / "pki",
            (f"--kubeconfig={self.kubeconfig(ADMIN)}", "--port=0", "--leader-elect=false"),
        )
        self._run(
            "kube-controller-manager",
            *(*common, f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/ca.key"),
            *("--node-monitor-grace-period=16s", "--node-monitor-period=1s"),
        )
        self._run("kube-scheduler", *common)

    def stop_server(self) -> None:
        self.server.kill()
        self.server.wait()

    def _run(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [self.binaries / name, *words], stdout=log, stderr=log, cwd=self.folder, preexec_fn=die_with_parent
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        self.api.close()
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def kubeconfig(self, user: str, namespace: str = "default") -> Path:
        """A file for a user whose certificate was issued."""
        read = {
            name: base64.b64encode((self.folder / "pki" / file).read_bytes()).decode()
            for name, file in (("ca", "ca.crt"), ("certificate", f"{user}.crt"), ("key", f"{user}.key"))
        }
        identity = {"client-certificate-data": read["certificate"], "client-key-data": read["key"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority-data": read["ca"]}}],
            "users": [{"name": user, "user": identity}],
        }
        path = self.folder / f"{user}-{namespace}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def namespace(self) -> str:
        """A new one."""
        self.count += 1
        name = f"test-{os.getpid()}-{self.count}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def apply(self, manifest: dict[str, Any], *, user: str) -> None:
        """Create an object; bindings are for this user instead of a service account."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        if "subjects" in manifest:
            manifest = manifest | {"subjects": [{"kind": "User", "name": user}]}
        version = manifest["apiVersion"]
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        self.api.post(f"{root}{where}/{kind.lower()}s", manifest)

    def lists(self) -> int:
        """How many lists the audit log has."""
        return sum(verb == "list" for _, verb in self.requests())

    def requests(self) -> list[tuple[str, str]]:
        """(resource, verb) of all requests so far, but those of the API server to itself."""
        events = map(json.loads, self.audit_log.read_text().splitlines())
        own = (each for each in events if "objectRef" in each and each["user"]["username"] != "system:apiserver")
        return [(each["objectRef"]["resource"], each["verb"]) for each in own if each["stage"] != "RequestReceived"]

    def rights_used(self, user: str) -> tuple[set[tuple[str, str, str]], list[str]]:
        """(group, resource, verb) of the requests of this user, and those that were refused for missing rights."""
        used, refused = set(), []
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == user and "objectRef" in event:
                about = event["objectRef"]
                resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
                used.add((about.get("apiGroup", ""), resource, event["verb"]))
                if event.get("responseStatus", {}).get("code") == 403:
                    refused.append(line)
        return used, refused


def die_with_parent() -> None:
    """A run of tests that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    binaries = assets()
    if binaries is None:
        pytest.skip(HOW)
    plane = ControlPlane(binaries, folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
