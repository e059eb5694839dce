"""Hollow kubelets: nodes that exist in the API only. The commands of their pods run as processes of this machine; their
logs can be read through the API server."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from skep.engines.kube.api import Api, ApiError
from skep.engines.kube.objects import ObjectMeta
from skep.engines.kube.watch import KubeWatch

TICK_S = 0.02


class WholePod(msgspec.Struct, frozen=True):
    """As much as a kubelet needs."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Task(msgspec.Struct):
    """A pod that runs."""

    name: str
    path: str
    process: subprocess.Popen[bytes]
    container: str
    node: str
    env: dict[str, str]
    kill_at: float | None = None
    is_deleted: bool = False


class HollowKubelets:
    """All nodes of a test in one object: one watch, one thread that waits for processes."""

    def __init__(
        self, api: Api, folder: Path, nodes: dict[str, int], pki: Path, namespace: str, *, runs: bool = True
    ) -> None:
        """GPUs by node. `runs=False`: pods are only said to run, for tests of load."""
        self.api, self.folder, self.nodes, self.runs = api, folder, nodes, runs
        self.tasks: dict[str, Task] = {}
        self.silent: set[str] = set()
        """Nodes that hear and say nothing; their pods run on."""
        self.broken: set[str] = set()
        """Labels `skep/task` of pods that cannot be started."""
        self.image_fails: set[str] = set()
        self.slow_images: set[str] = set()
        """Images that are never pulled to the end."""
        self.starts: list[str] = []
        self.ended: set[str] = set()
        """Uids of pods that ended here; what the watch says of them may be older."""
        self._lock = threading.RLock()
        self._later: list[Callable[[], object]] = []
        """What could not be said because the API server was away, in order."""
        self._closing = threading.Event()
        self.logs = LogServer(self, pki)
        for name, gpus in nodes.items():
            self.join(name, gpus)
        self.watch = KubeWatch(
            api, f"/api/v1/namespaces/{namespace}/pods", WholePod, self._changed, fieldSelector="spec.nodeName!="
        )
        self.watch.start()
        self._thread = threading.Thread(target=self._work, name="hollow", daemon=True)
        self._thread.start()

    def join(self, name: str, gpus: int) -> None:
        try:
            self.api.post("/api/v1/nodes", {"metadata": {"name": name}})
            # The API server marks every new node as not ready; a controller that is not here would take that away.
            self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        except ApiError as error:
            if error.status != 409:
                raise
        self.nodes[name] = gpus
        self.set_ready(name, is_ready=True)

    def set_ready(self, name: str, *, is_ready: bool) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(self.nodes[name])}
        ready = {"type": "Ready", "status": "True" if is_ready else "Unknown", "reason": "Test"}
        port = {"kubeletEndpoint": {"Port": self.logs.server_address[1]}}
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": port}
        status |= {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def silence(self, name: str) -> None:
        """As a node that lost its network, and that the node controller has noticed."""
        with self._lock:
            self.silent.add(name)
        self.set_ready(name, is_ready=False)

    def hear(self, name: str) -> None:
        """It is back: what is no longer wanted there ends before it says that it is ready."""
        with self._lock:
            self.silent.discard(name)
            there = {pod.metadata.uid: pod for pod in list(self.watch.items.values())}
            for uid, task in self.tasks.items():
                if task.node == name and uid not in there:
                    task.is_deleted = True
                    end(task.process, signal.SIGKILL)
            for pod in there.values():
                self._changed(None, pod)
        self.set_ready(name, is_ready=True)

    def close(self) -> None:
        self._closing.set()
        self.watch.close()
        self._thread.join()
        self.logs.shutdown()
        self.logs.server_close()
        for task in self.tasks.values():
            end(task.process, signal.SIGKILL)
            task.process.wait()
        for name in self.nodes:
            delete(self.api, f"/api/v1/nodes/{name}")  # or servers of other tests would place jobs there

    def running(self) -> list[str]:
        with self._lock:
            return [task.name for task in self.tasks.values()]

    def alive(self) -> list[Task]:
        with self._lock:
            return [task for task in self.tasks.values() if task.process.poll() is None]

    def signal(self, pod: str, number: int) -> None:
        with self._lock:
            for task in self.tasks.values():
                if task.name == pod:
                    end(task.process, number)

    def log_of(self, pod: str) -> Path:
        return self.folder / f"{pod}.log"

    def _changed(self, before: WholePod | None, pod: WholePod | None) -> None:
        if pod is None:
            with self._lock:
                for task in self.tasks.values():
                    if before is not None and task.name == before.metadata.name and task.node not in self.silent:
                        task.is_deleted = True
                        end(task.process, signal.SIGKILL)
            return
        if pod.spec["nodeName"] not in self.nodes or pod.spec["nodeName"] in self.silent:
            return
        with self._lock:
            task = self.tasks.get(pod.metadata.uid)
            is_over = pod.status.get("phase") in ("Succeeded", "Failed")
            if pod.metadata.uid in self.ended:
                return
            if task is None and not is_over and not pod.metadata.deletion_timestamp:
                self._begin(pod)
            elif pod.metadata.deletion_timestamp and task is not None and not task.is_deleted:
                task.is_deleted = True
                task.kill_at = time.monotonic() + (pod.metadata.deletion_grace_period_seconds or 0)
                end(task.process, signal.SIGTERM)
            elif pod.metadata.deletion_timestamp and task is None and not is_over:
                self._say(path_of(pod), phase="Failed")

    def _begin(self, pod: WholePod) -> None:
        container, path = pod.spec["containers"][0], path_of(pod)
        if pod.metadata.labels.get("skep/task") in self.broken:
            self._say(path, phase="Failed", reason="UnexpectedAdmissionError", message="no such device")
            return
        if container["image"] in self.image_fails:
            self._say(
                path, "Pending", container["name"], waiting={"reason": "ImagePullBackOff", "message": "not found"}
            )
            return
        if container["image"] in self.slow_images:
            self._say(path, "Pending", container["name"], waiting={"reason": "ContainerCreating"})
            return
        self.starts.append(pod.metadata.name)
        if not self.runs:
            self._say(path, "Running", container["name"], running={})
            return
        line = [*container.get("command", []), *container.get("args", [])]
        env, node = self._env(pod, container), pod.spec["nodeName"]
        with self.log_of(pod.metadata.name).open("ab") as log:
            process = subprocess.Popen(line, env=env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self.tasks[pod.metadata.uid] = Task(pod.metadata.name, path, process, container["name"], node, env)
        self._say(path, "Running", container["name"], running={})

    def _env(self, pod: WholePod, container: dict[str, Any]) -> dict[str, str]:
        """Volumes are folders of this machine, and all pods have its address."""
        sources = {each["name"]: each for each in pod.spec.get("volumes", [])}
        moved = {}
        for mount in container.get("volumeMounts", []):
            source = sources[mount["name"]].get("hostPath", {}).get("path", str(self.folder / pod.metadata.name))
            moved[mount["mountPath"]] = str(Path(source, mount.get("subPath", "")))
            Path(moved[mount["mountPath"]]).mkdir(parents=True, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        for each in container.get("env", []):
            value = each.get("value", "")
            for mount, place in moved.items():
                value = place + value[len(mount) :] if value == mount or value.startswith(f"{mount}/") else value
            env[each["name"]] = "127.0.0.1" if value.endswith(".svc") else value
        for each in container.get("envFrom", []):
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/secrets/{each['secretRef']['name']}"
            found = msgspec.json.decode(self.api.get(path))["data"]
            env |= {name: base64.b64decode(value).decode() for name, value in found.items()}
        return env

    def _work(self) -> None:
        while not self._closing.wait(TICK_S):
            with self._lock:
                later, self._later = self._later, []
                for what in later:
                    self._send(what)
                for uid, task in list(self.tasks.items()):
                    if task.node not in self.silent:
                        self._check(uid, task)

    def _check(self, uid: str, task: Task) -> None:
        if task.kill_at is not None and time.monotonic() > task.kill_at:
            end(task.process, signal.SIGKILL)
        code = task.process.poll()
        if code is None:
            return
        code = code if code >= 0 else 128 - code
        del self.tasks[uid]
        self.ended.add(uid)
        phase = "Failed" if code else "Succeeded"
        self._say(
            task.path, phase, task.container, terminated={"exitCode": code, "reason": "Error" if code else "Completed"}
        )
        if task.is_deleted:
            self._send(lambda: delete(self.api, task.path, grace_s=0))

    def _send(self, what: Callable[[], object]) -> None:
        """Now, or when the API server is back."""
        if self._later:
            self._later.append(what)
            return
        try:
            what()
        except ApiError as error:
            if error.status != 0 and error.status < 500:
                raise
            self._later.append(what)

    def _say(
        self, path: str, phase: str, container: str = "", reason: str = "", message: str = "", **state: Any
    ) -> None:
        status: dict[str, Any] = {"phase": phase, "reason": reason, "message": message}
        if container:
            about = {"image": "", "imageID": "", "ready": phase == "Running", "restartCount": 0}
            status["containerStatuses"] = [{"name": container, "state": state, **about}]
        self._send(lambda: self._patch(f"{path}/status", {"status": status}))

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        try:
            self.api.patch(path, body)
        except ApiError as error:
            if error.status != 404:
                raise


class LogServer(ThreadingHTTPServer):
    """The part of a kubelet that the API server asks for logs."""

    daemon_threads = True
    is_deaf = False
    """It refuses commands."""

    def __init__(self, kubelets: HollowKubelets, pki: Path) -> None:
        super().__init__(("127.0.0.1", 0), LogHandler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki / "server.crt", pki / "server.key")
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.kubelets = kubelets
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class LogHandler(BaseHTTPRequestHandler):
    """`/containerLogs/NAMESPACE/POD/CONTAINER` and `/exec/NAMESPACE/POD/CONTAINER`"""

    server: LogServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        _, what, _, pod, _ = parts.path.split("/")
        self.close_connection = True
        (self.run if what == "exec" else self.send_log)(pod, parse_qs(parts.query))

    do_POST = do_GET

    def send_log(self, pod: str, query: dict[str, list[str]]) -> None:
        kubelets, follows = self.server.kubelets, query.get("follow") == ["true"]
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with kubelets.log_of(pod).open("rb") as file:
            while True:
                is_last = not follows or not any(task.name == pod for task in list(kubelets.tasks.values()))
                while piece := file.read(1 << 16):
                    self.wfile.write(piece)
                self.wfile.flush()
                if is_last:
                    return
                time.sleep(TICK_S)

    def run(self, pod: str, query: dict[str, list[str]]) -> None:
        """A command with the variables of the pod, over a WebSocket with channels."""
        task = next((task for task in self.server.kubelets.alive() if task.name == pod), None)
        if task is None or self.server.is_deaf:
            self.send_error(404)
            return
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade")):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
        self.end_headers()
        status: dict[str, Any] = {"status": "Success"}
        try:
            done = subprocess.run(query["command"], env=task.env, capture_output=True, check=False)
            self.send_channel(1, done.stdout)
            self.send_channel(2, done.stderr)
            if done.returncode:
                causes = [{"reason": "ExitCode", "message": str(done.returncode)}]
                status = {"status": "Failure", "details": {"causes": causes}}
        except OSError as error:
            status = {"status": "Failure", "message": str(error)}
        self.send_channel(3, msgspec.json.encode(status))
        self.wfile.write(b"\x88\x02\x03\xe8")

    def send_channel(self, channel: int, content: bytes) -> None:
        self.wfile.write(b"\x82\x7f" + (len(content) + 1).to_bytes(8) + bytes([channel]) + content)

    def log_message(self, *words: object) -> None: ...


def delete(api: Api, path: str, grace_s: int | None = None) -> None:
    """It may be gone already."""
    try:
        api.delete(path, grace_s)
    except ApiError as error:
        if error.status != 404:
            raise


def path_of(pod: WholePod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def end(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
