"""The `extras` of an OpenPAI job: gang or not, priority class, and the GPU type of each role."""

from __future__ import annotations

import msgspec

from skep.core.errors import did_you_mean
from skep.core.model import PRIORITIES
from skep.files.document import Field
from skep.files.text import shorten
from skep.jobs import fields

OF_HIVED = (
    "jobPriorityClass",
    "gangReleaseEnable",
    "lazyPreemptionEnable",
    "ignoreK8sSuggestedNodes",
    "taskRoles",
)
OF_SKU = ("skuType", "skuNum", "pinnedCellId", "affinityGroupName")
WITHOUT_EFFECT = ("submitFrom", "ignoreK8sSuggestedNodes")
"""Keys that do not concern the job, or only Kubernetes: no warning."""


class OpenPaiSku(msgspec.Struct, frozen=True):
    type: str = ""
    number: int = 0
    """GPUs of a task; 0: as many as the role requests."""


class Extras(msgspec.Struct, frozen=True):
    gang: bool = True
    priority: int = PRIORITIES["test"]
    skus: dict[str, OpenPaiSku] = {}
    """By role."""
    pinned: str = ""


def read_extras(field: Field | None, roles: dict[str, Field], warnings: list[str]) -> Extras:
    given = fields.mapping(field) if field is not None else {}
    for key, entry in given.items():
        if key not in ("gangAllocation", "hivedScheduler", *WITHOUT_EFFECT) and not _is_nothing(entry):
            warnings.append(f"extras.{shorten(key)}: not used")
    hived = given.get("hivedScheduler")
    asked = hived.fields(OF_HIVED) if hived is not None and not hived.is_null else {}
    for key in ("gangReleaseEnable", "lazyPreemptionEnable"):
        if key in asked and asked[key].flag():
            warnings.append(f"extras.hivedScheduler.{key}: not used")
    return Extras(
        gang=given["gangAllocation"].flag() if "gangAllocation" in given else True,
        priority=_priority(asked.get("jobPriorityClass")),
        skus=_skus(asked.get("taskRoles"), roles, warnings),
        pinned=_pinned(asked.get("taskRoles")),
    )


def _is_nothing(field: Field) -> bool:
    return field.is_null or (isinstance(field.raw.content, list) and not field.raw.content)


def _priority(field: Field | None) -> int:
    if field is None or field.is_null:
        return PRIORITIES["test"]
    name = field.text()
    if name not in PRIORITIES:
        raise field.fault(f"one of {', '.join(reversed(PRIORITIES))}")
    return PRIORITIES[name]


def _skus(field: Field | None, roles: dict[str, Field], warnings: list[str]) -> dict[str, OpenPaiSku]:
    if field is None or field.is_null:
        return {}
    found = {}
    groups = set()
    for role, entry in field.fields().items():
        if role not in roles:
            near = did_you_mean(role, roles, start=", ")
            raise entry.trouble(f"{shorten(entry.path)}: unknown role{near}")
        given = {key: value for key, value in entry.fields(OF_SKU).items() if not value.is_null}
        found[role] = _sku(entry, given)
        groups.add(given["affinityGroupName"].text() if "affinityGroupName" in given else "")
    if len(groups) > 1:
        warnings.append("extras.hivedScheduler: affinity groups are not used, all roles of a gang are one")
    return found


def _pinned(field: Field | None) -> str:
    """The pinned cell of the whole job: all its roles are in one cell."""
    roles = {} if field is None or field.is_null else field.fields()
    given = [entry.fields(OF_SKU).get("pinnedCellId") for entry in roles.values()]
    names = {fields.pinned(name) if name is not None and not name.is_null else "" for name in given}
    if len(names) > 1:
        assert field is not None
        raise field.trouble(f"{field.path}: all roles must be in one pinned cell, or none", hint="name one for all")
    return names.pop() if names else ""


def _sku(field: Field, given: dict[str, Field]) -> OpenPaiSku:
    if "skuType" in given and "pinnedCellId" in given:
        raise field.trouble(f"{field.path} has both skuType and pinnedCellId, expected one of them")
    return OpenPaiSku(
        type=fields.gpu_type(given["skuType"]) if "skuType" in given else "",
        number=fields.whole(given["skuNum"], 1, fields.GPUS_MAX) if "skuNum" in given else 0,
    )
