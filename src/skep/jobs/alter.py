"""What a pending job may ask for instead of what it was submitted with; everything else of it stays."""

from __future__ import annotations

import msgspec

from skep.core.errors import InputError
from skep.jobs.request import Request, TaskRole


class Alteration(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: as before."""

    gpus: int | None = None
    """Of all its tasks together."""
    gpu_type: str | None = None
    """Empty: any type."""
    vc: str | None = None


def altered(request: Request, wanted: Alteration) -> Request:
    """Raises if the job cannot ask for that."""
    if wanted.vc is not None and wanted.vc != request.vc:
        request = _in_vc(request, wanted.vc)
    if wanted.gpus is not None and wanted.gpus != request.gpus:
        request = _with_gpus(request, wanted.gpus)
    if wanted.gpu_type is not None:
        roles = {name: _of_type(role, wanted.gpu_type) for name, role in request.tasks.items()}
        request = msgspec.structs.replace(request, tasks=roles)
    return request


def _in_vc(request: Request, vc: str) -> Request:
    for what, is_bound in (("pinned cell", request.pinned), ("group", request.group)):
        if is_bound:
            problem = f"job {request.name} has a {what}, which belongs to VC {request.vc}"
            raise InputError(problem, hint="submit it again in the other VC")
    return msgspec.structs.replace(request, vc=vc)


def _with_gpus(request: Request, gpus: int) -> Request:
    """Fewer tasks of the same size; a job of one task has fewer GPUs in it."""
    with_gpus = [(name, role) for name, role in request.tasks.items() if role.gpus]
    if len(with_gpus) != 1 or not request.gang:
        hint = "submit it again with other tasks"
        raise InputError(f"job {request.name}: only a gang with GPUs in one role can get another number", hint=hint)
    name, role = with_gpus[0]
    if gpus < 1 or (role.count > 1 and gpus % role.gpus):
        step = f", a multiple of {role.gpus}" if role.count > 1 and role.gpus > 1 else ""
        raise InputError(f"job {request.name} cannot have {gpus} GPUs", hint=f"expected 1 or more{step}")
    count = gpus // role.gpus if role.count > 1 else 1
    role = msgspec.structs.replace(role, count=count, gpus=gpus // count)
    elastic = request.elastic
    if elastic is not None:
        elastic = msgspec.structs.replace(elastic, min=min(elastic.min, count), max=max(elastic.max, count))
    return msgspec.structs.replace(request, tasks={**request.tasks, name: role}, elastic=elastic)


def _of_type(role: TaskRole, gpu_type: str) -> TaskRole:
    return msgspec.structs.replace(role, gpu_type=gpu_type) if role.gpus else role
