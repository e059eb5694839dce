"""Pods as Kubernetes shows them to HiveD: a spec each, gangs by the name of their affinity group."""

from __future__ import annotations

from typing import Any

from skep.core.cells.gangs import Request
from skep.core.cells.tree import GUARANTEED_MAX, OPPORTUNISTIC
from skep.core.errors import InputError

OLD_NAMES = {"gpuType": "leafCellType", "gpuNumber": "leafCellNumber"}
"""Keys of older versions."""


def parse_spec(pod: str, spec: Any) -> tuple[Request, int]:
    """The gang that a pod's scheduling spec describes, and the gpus of this pod."""
    if not isinstance(spec, dict):
        raise InputError(f"pod {pod}: the scheduling spec is not a mapping")
    spec = renamed(spec)
    vc = text_of(spec, "virtualCluster")
    if not vc:
        raise InputError(f"pod {pod}: virtualCluster is missing")
    priority = whole(spec, "priority", 0)
    if not OPPORTUNISTIC <= priority <= GUARANTEED_MAX:
        raise InputError(f"pod {pod}: priority is {priority}, expected -1 to {GUARANTEED_MAX}")
    size = whole(spec, "leafCellNumber", 0)
    if size <= 0:
        raise InputError(f"pod {pod}: leafCellNumber is {size}, expected 1 or more")
    name, pods = gang_of(pod, spec, size)
    request = Request(
        name=name,
        vc=vc,
        priority=priority,
        pods=pods,
        gpu_type=text_of(spec, "leafCellType"),
        pinned=text_of(spec, "pinnedCellId"),
        is_lazy=bool(spec.get("lazyPreemptionEnable", False)),
        only_suggested=not spec.get("ignoreK8sSuggestedNodes", True),
    )
    return request, size


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {OLD_NAMES.get(key, key): renamed(item) for key, item in value.items()}
    return [renamed(item) for item in value] if isinstance(value, list) else value


def gang_of(pod: str, spec: dict[str, Any], size: int) -> tuple[str, dict[int, int]]:
    group = spec.get("affinityGroup")
    if group is None:
        return f"test/{pod}", {size: 1}
    if not isinstance(group, dict):
        raise InputError(f"pod {pod}: affinityGroup is not a mapping")
    name = text_of(group, "name")
    if not name:
        raise InputError(f"pod {pod}: affinityGroup.name is missing")
    pods: dict[int, int] = {}
    for member in group.get("members") or ():
        count, gpus = whole(member, "podNumber", 0), whole(member, "leafCellNumber", 0)
        if count <= 0 or gpus <= 0:
            raise InputError(f"pod {pod}: affinityGroup.members has {count} pods of {gpus} gpus, expected 1 or more")
        pods[gpus] = pods.get(gpus, 0) + count
    if size not in pods:
        raise InputError(f"pod {pod}: affinityGroup.members has no pod of {size} gpus")
    return name, pods


def text_of(spec: dict[str, Any], key: str) -> str:
    value = spec.get(key)
    return "" if value is None else str(value)


def whole(spec: Any, key: str, default: int) -> int:
    value = spec.get(key, default) if isinstance(spec, dict) else default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{key} is {value!r}, expected a whole number")
    return value
