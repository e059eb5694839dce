"""A real node for tests: containerd and a kubelet on this machine, which join a control plane of the tests.

The node's address lies on the loopback device and pods are on a bridge of their own, so nothing leaves the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from tests.support.hollow import delete
from tests.support.kube_plane import ControlPlane, assets, free_port
from tests.support.pod_names import PodNames

HOW = "a real kubelet needs root, and its binaries: `scripts/kube-assets --all` makes them"
ADDRESS = "10.99.0.1"
SPACE = "k8s.io"
LOCK = Path(tempfile.gettempdir()) / "skep-real-node.lock"
READY_S = 120.0
PAUSE = "localhost/skep-pause:1"


SUBNET = "10.98.0.0/24"
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "skep-tests",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "skep-tests0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": SUBNET}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}


class RealNode:
    """`name` is that of the node."""

    def __init__(self, plane: ControlPlane, binaries: Path, folder: Path, name: str = "real") -> None:
        self.plane, self.binaries, self.folder, self.name = plane, binaries, folder, name
        self.socket = folder / "containerd.sock"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.names: PodNames | None = None

    def start(self) -> None:
        subprocess.run(["ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=False, capture_output=True)
        self.names = PodNames(self.plane.api, ADDRESS)
        self._start_containerd()
        busybox = self.binaries / "busybox"
        self.add_image(PAUSE, {"bin/sh": busybox, "bin/busybox": busybox}, ["/bin/busybox", "sleep", "1000000"])
        self._start_kubelet()

    def _start_containerd(self) -> None:
        config = f"""version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
    BinaryName = "{self.binaries}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self.binaries}"
    conf_dir = "{self.folder}"
"""
        (self.folder / "bridge.conflist").write_text(json.dumps(NETWORK))
        (self.folder / "containerd.toml").write_text(config)
        self._run("containerd", "--config", str(self.folder / "containerd.toml"))
        self._until(lambda: self.ctr("version").returncode == 0, "containerd.log")

    def _start_kubelet(self) -> None:
        user = f"system:node:{self.name}"
        self.plane.authority.issue(user, "system:nodes")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.plane.folder / "pki" / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "oomScoreAdj": 0,
            "maxOpenFiles": 20000,
            "failSwapOn": False,
            "featureGates": {"LocalStorageCapacityIsolation": False},
            "port": free_port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "containerLogMaxSize": "100Mi",
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "volumePluginDir": str(self.folder / "plugins"),
        }
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(config))
        self._run(
            "kubelet",
            *("--config", str(self.folder / "kubelet.yaml"), "--kubeconfig", str(self.plane.kubeconfig(user))),
            *("--container-runtime=remote", f"--container-runtime-endpoint=unix://{self.socket}"),
            *("--root-dir", str(self.folder / "kubelet"), "--hostname-override", self.name, "--node-ip", ADDRESS),
            *("--cert-dir", str(self.folder / "certificates"), "--seccomp-profile-root", str(self.folder / "seccomp")),
        )
        self._until(self._is_ready, "kubelet.log")

    def _is_ready(self) -> bool:
        from skep.engines.kube.api import ApiError

        with contextlib.suppress(ApiError):
            node = json.loads(self.plane.api.get(f"/api/v1/nodes/{self.name}"))
            return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
        return False

    def add_image(self, name: str, files: dict[str, Path], command: list[str] | None = None) -> None:
        """From files of this machine."""
        layer = self.folder / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            for path, source in files.items():
                tar.add(source.resolve(), path)
        self.add_layer(name, layer, command)

    def add_layer(self, name: str, layer: Path, command: list[str] | None = None) -> None:
        """A tar of a root folder as an image of one layer."""
        archive = self.folder / "image.tar"
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        about = {"architecture": "amd64", "os": "linux", "config": {"Cmd": command or ["/bin/sh"]}}
        about["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
        config = json.dumps(about).encode()
        config_digest = hashlib.sha256(config).hexdigest()
        kind = "application/vnd.oci.image"
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "config": part(f"{kind}.config.v1+json", config_digest, len(config)),
                "layers": [part(f"{kind}.layer.v1.tar", digest, layer.stat().st_size)],
            }
        ).encode()
        manifest_digest = hashlib.sha256(manifest).hexdigest()
        entry = part(f"{kind}.manifest.v1+json", manifest_digest, len(manifest))
        entry["annotations"] = {"io.containerd.image.name": name}
        index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
        with tarfile.open(archive, "w") as tar:
            tar.add(layer, f"blobs/sha256/{digest}")
            for path, content in (
                ("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
                (f"blobs/sha256/{config_digest}", config),
                (f"blobs/sha256/{manifest_digest}", manifest),
                ("index.json", index),
            ):
                info = tarfile.TarInfo(path)
                info.size = len(content)
                tar.addfile(info, BytesIO(content))
        done = self.ctr("images", "import", str(archive))
        archive.unlink()
        layer.unlink()
        assert done.returncode == 0, done.stderr

    def ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.binaries / "ctr"), "--address", str(self.socket), "--namespace", SPACE, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _run(self, name: str, *words: str) -> None:
        env = {**os.environ, "PATH": f"{self.binaries}:{os.environ['PATH']}"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen([self.binaries / name, *words], stdout=log, stderr=log, cwd=self.folder, env=env)
            )

    def _until(self, condition, log: str) -> None:
        by_s = time.monotonic() + READY_S
        while not condition():
            is_dead = any(process.poll() is not None for process in self.processes)
            if is_dead or time.monotonic() > by_s:
                raise RuntimeError((self.folder / log).read_text()[-3000:])
            time.sleep(0.2)

    def stop(self) -> None:
        """The kubelet first, then what containers are left, then containerd."""
        if self.names is not None:
            self.names.close()
        for process in self.processes[1:]:
            process.terminate()
            process.wait()
        delete(self.plane.api, f"/api/v1/nodes/{self.name}")
        if self.processes:
            for task in self.ctr("tasks", "list", "--quiet").stdout.split():
                self.ctr("tasks", "kill", "--all", "--signal", "SIGKILL", task)
            time.sleep(0.5)
            for task in self.ctr("tasks", "list", "--quiet").stdout.split():
                self.ctr("tasks", "delete", "--force", task)
            self.processes[0].terminate()
            self.processes[0].wait()
        subprocess.run(["ip", "link", "delete", "skep-tests0"], check=False, capture_output=True)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([each for each in mounts if each.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False)


def part(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


@contextlib.contextmanager
def real_node(plane: ControlPlane, folder: Path) -> Iterator[RealNode]:
    binaries = assets("--all")
    if binaries is None or os.geteuid() != 0:
        pytest.skip(HOW)
    folder.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # The address and the bridge exist once.
        node = RealNode(plane, binaries, folder)
        try:
            node.start()
            yield node
        finally:
            node.stop()
