"""The parts of Kubernetes objects that we read. Decoding only these costs a sixth of decoding everything."""

from __future__ import annotations

import msgspec


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] = []


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class WaitingContainer(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    terminated: Terminated | None = None
    waiting: WaitingContainer | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []


class ResourceLimits(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}

    def asked(self) -> dict[str, str]:
        return {**self.limits, **self.requests}


class ContainerSpec(msgspec.Struct, frozen=True):
    name: str = ""
    resources: ResourceLimits = ResourceLimits()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    containers: list[ContainerSpec] | None = None
    """None in the bookmark of a watch."""
    init_containers: list[ContainerSpec] = []


class KubePod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminated(self) -> Terminated | None:
        return next((each.state.terminated for each in self.status.container_statuses if each.state.terminated), None)

    @property
    def waiting(self) -> WaitingContainer | None:
        return next((each.state.waiting for each in self.status.container_statuses if each.state.waiting), None)

    @property
    def runs(self) -> bool:
        return self.status.phase == "Running" and self.terminated is None

    @property
    def is_over(self) -> bool:
        """A pod that is being deleted may keep its phase when its container has ended."""
        return self.status.phase in ("Succeeded", "Failed") or self.terminated is not None

    @property
    def is_untouched(self) -> bool:
        """No kubelet has said anything about it, and no one has deleted it."""
        status = self.status
        return status.phase == "Pending" and not status.container_statuses and not self.metadata.deletion_timestamp

    @property
    def is_let_go(self) -> bool:
        """Deleted, and no kubelet has to do with it: it was not bound, or its kubelet is done with a container that
        never ran. Only the finalizer keeps it."""
        about = self.metadata
        return about.deletion_timestamp is not None and (
            not self.spec.node_name or about.deletion_grace_period_seconds == 0
        )


class PodPhase(msgspec.Struct, frozen=True):
    phase: str = "Pending"


class ForeignPod(msgspec.Struct, frozen=True):
    """A pod that is not one of ours: what it uses of its node."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodPhase = PodPhase()

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class KubeNodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class KubeNodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class KubeNode(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: KubeNodeSpec = KubeNodeSpec()
    status: KubeNodeStatus = KubeNodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class NodeList(msgspec.Struct, frozen=True):
    items: list[KubeNode]


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()
