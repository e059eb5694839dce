"""The pods of a launch: what Kubernetes is asked to run for each task."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from skep.core.errors import InputError
from skep.engines.kube.reports import ReportTokens, report_path
from skep.engines.kube.settings import PLUGIN, VISIBLE, KubeSettings
from skep.jobs.env import MASTER, Folders, Ports, TaskPlace, command_line, ports_wanted, task_env
from skep.jobs.request import Request

SCHEDULER = "skep"
STORE, JOB, LAUNCH, TASK = "skep/store", "skep/job", "skep/launch", "skep/task"
FINALIZER = "skep/log"
"""A pod that ended stays until its log and its exit code are stored here."""
GPU = "nvidia.com/gpu"
CONTAINER = "task"
TASK_DIR, CHECKPOINTS = "/skep/task", "/skep/checkpoint"
MASTER_PORT, FIRST_PORT = 29500, 20000
"""Every pod has an address of its own, so ports need not be searched for."""

Manifest = dict[str, Any]


class GangManifests(msgspec.Struct, frozen=True):
    """Everything that is created for a launch, in this order; the pods are then bound."""

    pods: list[Manifest]
    nodes: list[str]
    service: Manifest | None
    secret: Manifest | None


def launch_name(store: str, job_id: str, launch: int) -> str:
    """Its pods have this name and their rank: a launch that is asked for twice is one start."""
    return f"skep-{store}-{as_word(job_id)}-{launch}"


@functools.lru_cache(4096)
def as_word(text: str, most: int = 20) -> str:
    """For labels and names: plain text as it is, any other with a hash, so that different texts stay different."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")
    return plain if plain == text else f"{plain or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class PodMaker:
    def __init__(self, settings: KubeSettings, store: str, namespace: str, tokens: ReportTokens) -> None:
        self.settings, self.store, self.namespace, self.tokens = settings, store, namespace, tokens

    def gang(self, request: Request, job_id: str, launch: int, places: list[TaskPlace]) -> GangManifests:
        name = launch_name(self.store, job_id, launch)
        places = [msgspec.structs.replace(place, address=self.address(name, rank)) for rank, place in enumerate(places)]
        labels = self.labels(job_id, launch)
        head: Manifest = {"name": name, "namespace": self.namespace, "labels": labels}
        service = None
        if len(places) > 1:
            about = {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True}
            service = {"metadata": head, "spec": about}
        hidden = self.hidden(request, job_id, launch)
        secret = {"metadata": head, "stringData": hidden} if hidden else None
        ports = [ports_of(wanted) for wanted in ports_wanted(request, places)]
        pods = [self.pod(request, job_id, launch, places, rank, ports) for rank in range(len(places))]
        return GangManifests(pods, [place.node for place in places], service, secret)

    def hidden(self, request: Request, job_id: str, launch: int) -> dict[str, str]:
        """Variables that the description of a pod does not show."""
        own = {"SKEP_REPORT_TOKEN": self.tokens.of(job_id, launch)} if self.settings.reports else {}
        return request.secrets | own

    def labels(self, job_id: str, launch: int) -> dict[str, str]:
        return {STORE: self.store, JOB: as_word(job_id), LAUNCH: str(launch)}

    def address(self, name: str, rank: int) -> str:
        return f"{name}-{rank}.{name}.{self.namespace}.svc"

    def pod(
        self, request: Request, job_id: str, launch: int, places: list[TaskPlace], rank: int, ports: Sequence[Ports]
    ) -> Manifest:
        place, name = places[rank], launch_name(self.store, job_id, launch)
        labels = {**self.labels(job_id, launch), TASK: as_word(place.task)}
        about = {"skep/job-id": job_id, "skep/job-name": request.name, "skep/user": request.user}
        if place.gpus and self.settings.gpus == VISIBLE:
            about["skep/gpus"] = ",".join(map(str, place.gpus))
        volumes, mounts = self.volumes(request, job_id)
        spec: Manifest = {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": max(math.ceil(request.grace_s), 1),
            "enableServiceLinks": False,
            "automountServiceAccountToken": bool(request.kubernetes.service_account),
            "hostname": f"{name}-{rank}",
            "subdomain": name,
            "volumes": volumes,
            "containers": [self.container(request, job_id, launch, places, rank, ports) | {"volumeMounts": mounts}],
        }
        own = request.kubernetes
        if own.service_account:
            spec["serviceAccountName"] = own.service_account
        if pull := (*own.pull_secrets, *self.settings.pull_secrets):
            spec["imagePullSecrets"] = [{"name": each} for each in dict.fromkeys(pull)]
        if own.node_selector:
            spec["nodeSelector"] = own.node_selector
        if own.tolerations:
            spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in own.tolerations]
        metadata = {"name": f"{name}-{rank}", "labels": labels, "annotations": about, "finalizers": [FINALIZER]}
        return {"metadata": metadata, "spec": spec}

    def container(
        self, request: Request, job_id: str, launch: int, places: list[TaskPlace], rank: int, ports: Sequence[Ports]
    ) -> Manifest:
        place = places[rank]
        role = request.tasks[place.role]
        image = role.image or self.settings.image
        if not image:
            raise InputError(f"role {place.role} names no image", hint="name one, or a default in the config file")
        open_request = msgspec.structs.replace(request, secrets={})
        env = task_env(open_request, job_id, launch, places, rank, ports, Folders(TASK_DIR, CHECKPOINTS))
        env = {"PYTHONUNBUFFERED": "1", **env, **self.gpu_env(place)}
        if self.settings.reports:
            env["SKEP_REPORT_URL"] = self.settings.reports.rstrip("/") + report_path(job_id, launch, place.task)
        if place.gpus:
            del env["CUDA_VISIBLE_DEVICES"]  # counted on the node; inside the container they begin at 0
        amounts = amounts_of(role.cpu, role.memory_gib)
        amounts |= {name: f"{count}Mi" if in_mib(name) else str(count) for name, count in role.extras.items()}
        if place.gpus and self.settings.gpus == PLUGIN:
            amounts[GPU] = str(len(place.gpus))
        limits = {name: amount for name, amount in amounts.items() if name != "cpu"}
        container: Manifest = {
            "name": CONTAINER,
            "image": image,
            "command": command_line(role),
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "resources": {"requests": amounts, "limits": limits},
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        if request.workdir:
            container["workingDir"] = request.workdir
        if self.hidden(request, job_id, launch):
            container["envFrom"] = [{"secretRef": {"name": launch_name(self.store, job_id, launch)}}]
        return container

    def gpu_env(self, place: TaskPlace) -> dict[str, str]:
        """With the device plugin it is the plugin that sets the devices of a container."""
        if self.settings.gpus == PLUGIN and place.gpus:
            return {}
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(map(str, place.gpus)) or "void"}

    def volumes(self, request: Request, job_id: str) -> tuple[list[Manifest], list[Manifest]]:
        """Each volume of the job, its own folder, its checkpoints and its shared memory."""
        kept = self.settings.checkpoints or {"emptyDir": {}}
        volumes: list[Manifest] = [{"name": "skep-task", "emptyDir": {}}, {"name": "skep-checkpoint", **kept}]
        mounts: list[Manifest] = [
            {"name": "skep-task", "mountPath": TASK_DIR},
            {"name": "skep-checkpoint", "mountPath": CHECKPOINTS, "subPath": f"{self.store}/{as_word(job_id)}"},
        ]
        if request.kubernetes.shm_gib:
            size = f"{math.ceil(request.kubernetes.shm_gib * 1024)}Mi"
            volumes.append({"name": "skep-shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
            mounts.append({"name": "skep-shm", "mountPath": "/dev/shm"})
        for number, (path, claim) in enumerate(request.kubernetes.volumes.items()):
            volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
            mounts.append({"name": f"volume-{number}", "mountPath": path})
        return volumes, mounts


def ports_of(wanted: dict[str, int]) -> dict[str, list[int]]:
    found, following = {}, FIRST_PORT
    for label, count in wanted.items():
        if label == MASTER:
            found[label] = list(range(MASTER_PORT, MASTER_PORT + count))
        else:
            found[label] = list(range(following, following + count))
            following += count
    return found


def amounts_of(cpu: float, memory_gib: float) -> dict[str, str]:
    amounts = {}
    if cpu:
        amounts["cpu"] = f"{math.ceil(cpu * 1000)}m"
    if memory_gib:
        amounts["memory"] = f"{math.ceil(memory_gib * 1024)}Mi"
    return amounts


def in_mib(name: str) -> bool:
    """Whether this resource is counted in MiB; others are counted one by one."""
    return name == "ephemeral-storage" or name.startswith("hugepages-")
