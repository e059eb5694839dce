"""Pods as Kubernetes shows them to HiveD: a spec each, gangs by the name of their affinity group.

A spec comes from people and programs and may be wrong in any way: every error is an `InputError`, so that the pod is
refused and nothing else is affected.
"""

from __future__ import annotations

from typing import Any

from skep.core.cells.tree import GUARANTEED_MAX, OPPORTUNISTIC
from skep.core.errors import InputError
from skep.core.model import PRIORITIES
from skep.files.document import read_document
from skep.files.text import shorten
from skep.scenarios.gangs import GangRequest
from skep.scenarios.values import plain

OLD_NAMES = {"gpuType": "leafCellType", "gpuNumber": "leafCellNumber"}
"""Keys of older versions."""
ANNOTATION_MAX = 262_144
"""The largest annotation in bytes: the limit of Kubernetes for all annotations of a pod."""
WHOLE_MAX = 2**31 - 1
NAME_MAX = 1_000
WORDS = {"yes": True, "on": True, "no": False, "off": False}
"""Flags as older YAML has them."""


def parse_annotation(pod: str, text: Any) -> Any:
    """The scheduling spec as written on the pod."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"pod {pod}: the scheduling annotation is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate, which JSON can contain
        raise InputError(f"pod {pod}: the scheduling annotation is not text") from None
    if size > ANNOTATION_MAX:
        problem = f"the scheduling annotation has {size:,} bytes, expected at most {ANNOTATION_MAX:,}"
        raise InputError(f"pod {pod}: {problem}")
    return plain(read_document(text, f"pod {pod}: the scheduling annotation"))


def parse_spec(pod: str, spec: Any) -> tuple[GangRequest, int]:
    """The gang that a pod's scheduling spec describes, and the GPUs of this pod."""
    try:
        return _parse(pod, spec)
    except InputError as error:
        raise InputError(f"pod {pod}: {error}") from None


def _parse(pod: str, spec: Any) -> tuple[GangRequest, int]:
    if not isinstance(spec, dict):
        raise InputError("the scheduling spec is not a mapping")
    spec = renamed(spec)
    vc = text_of(spec, "virtualCluster")
    if not vc:
        raise InputError("virtualCluster is missing")
    named = PRIORITIES.get(str(spec.get("priority")))
    priority = whole(spec, "priority") if named is None else named
    if not OPPORTUNISTIC <= priority <= GUARANTEED_MAX:
        raise InputError(f"priority is {priority}, expected -1 to {GUARANTEED_MAX}")
    size = whole(spec, "leafCellNumber")
    if size <= 0:
        raise InputError(f"leafCellNumber is {size}, expected 1 or more")
    name, pods = gang_of(pod, spec, size)
    request = GangRequest(
        name=name,
        vc=vc,
        priority=priority,
        pods=pods,
        gpu_type=text_of(spec, "leafCellType"),
        pinned=text_of(spec, "pinnedCellId"),
        is_lazy=flag(spec, "lazyPreemptionEnable", default=False),
        only_suggested=not flag(spec, "ignoreK8sSuggestedNodes", default=True),
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
        raise InputError("affinityGroup is not a mapping")
    name = text_of(group, "name")
    if not name:
        raise InputError("affinityGroup.name is missing")
    members = group.get("members")
    if members is not None and not isinstance(members, list):
        raise InputError("affinityGroup.members is not a list")
    pods: dict[int, int] = {}
    for member in members or ():
        if not isinstance(member, dict):
            raise InputError("affinityGroup.members has something else than mappings")
        count, gpus = whole(member, "podNumber"), whole(member, "leafCellNumber")
        if count <= 0 or gpus <= 0:
            raise InputError(f"affinityGroup.members has {count} pods of {gpus} GPUs, expected 1 or more")
        pods[gpus] = pods.get(gpus, 0) + count
    if size not in pods:
        raise InputError(f"affinityGroup.members has no pod of {size} GPUs")
    return name, pods


def text_of(spec: dict[str, Any], key: str) -> str:
    """A name; one that looks like a number or a flag is a name too."""
    value = spec.get(key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float) or len(str(value)) > NAME_MAX:
        raise InputError(f"{key} is {shorten(repr(value))}, expected a name")
    return str(value)


def whole(spec: dict[str, Any], key: str) -> int:
    """0 if it is missing."""
    value = spec.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > WHOLE_MAX:
        raise InputError(f"{key} is {shorten(repr(value))}, expected a whole number")
    return value


def flag(spec: dict[str, Any], key: str, *, default: bool) -> bool:
    value = spec.get(key)
    if isinstance(value, str):
        value = WORDS.get(value.lower(), value)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{key} is {shorten(repr(value))}, expected true or false")
    return default if value is None else value
