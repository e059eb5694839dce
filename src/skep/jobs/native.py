"""Skep's own job file."""

from __future__ import annotations

import msgspec

from skep.core.errors import did_you_mean
from skep.core.share import MIG, MIG_PARTS, MODES
from skep.files.document import Field
from skep.files.text import shorten
from skep.jobs import fields
from skep.jobs.request import Elastic, OfShare, Request, TaskRole
from skep.jobs.table import BESIDE_NAME, ELASTIC, JOB, ROLE, SHARE, read_fields

OF_ANY = tuple(dict.fromkeys([*JOB, *BESIDE_NAME]))
ONE_ROLE = "task"
"""The role of a job that is written without `tasks`."""

OF_ROLES = ("request", "memory_gib")
"""The keys of `share` that belong to the roles."""

IMAGE_NOTED = "image: recorded only, the local engine runs the command without a container"
LOCALITY_NOTED = "locality: recorded only, no policy uses it yet"


def read_native(document: Field, user: str, warnings: list[str]) -> Request:
    given = document.fields(OF_ANY, required=("name",))
    tasks = _tasks(document, given, warnings)
    values = read_fields(given, JOB)
    if user:
        values["user"] = user
    if "group" in values:
        values["group"], values["of_group"] = values["group"]
    if "share" in values:
        tasks = _shared_tasks(given["share"], tasks, values["share"])
    if "elastic" in given and not given["elastic"].is_null:
        values["elastic"] = _elastic(given["elastic"], tasks, is_gang=values.get("gang", True))
    if "locality" in values:
        warnings.append(LOCALITY_NOTED)
    if not values.get("preemptible", True) and values.get("priority", 0) < 0:
        raise given["preemptible"].trouble("preemptible: false: opportunistic work (priority oppo) must be")
    request = Request(tasks=tasks, **values)
    if request.gang:
        _refuse_task_retries(request, given)
    return fields.checked(request, given.get("tasks", document))


def _tasks(document: Field, given: dict[str, Field], warnings: list[str]) -> dict[str, TaskRole]:
    """By role. Without `tasks`, the fields of a role may stand beside the name: the job then has one role."""
    beside = [key for key in BESIDE_NAME if key in given]
    if "tasks" not in given:
        return {ONE_ROLE: _role(document, {key: given[key] for key in beside}, warnings)}
    if beside:
        field = given[beside[0]]
        raise field.trouble(f"{field.path} belongs to a role", hint="put it below tasks.<role>, or leave out tasks")
    roles = fields.mapping(given["tasks"], most=fields.ROLES_MAX)
    if not roles:
        raise given["tasks"].fault("at least one role")
    return {
        fields.role_name(field, name): _role(field, field.fields(tuple(ROLE)), warnings)
        for name, field in roles.items()
    }


def _role(field: Field, given: dict[str, Field], warnings: list[str]) -> TaskRole:
    role = TaskRole(**read_fields(given, ROLE))
    where = f"{field.path}: " if field.path else ""
    if bool(role.command) == bool(role.argv):
        problem = "command and argv are both given" if role.command else "command (or argv) is missing"
        raise field.trouble(where + problem)
    if role.gpu_milli < 1000 and not role.gpus:
        raise given["gpu_milli"].trouble(f"{given['gpu_milli'].path} is given without GPUs")
    if role.image:
        warnings.append(IMAGE_NOTED)
    return role


def _shared_tasks(field: Field, tasks: dict[str, TaskRole], share: OfShare) -> dict[str, TaskRole]:
    """Roles with the requests of `share` for each of their GPUs."""
    given = {name: each for name, each in field.fields(tuple(SHARE)).items() if name in OF_ROLES}
    asked = read_fields(given, SHARE)
    if not any(role.gpus for role in tasks.values()):
        raise field.trouble(f"{field.path} is given without GPUs", hint="say gpus: 1")
    found = {name: _with_share(field, name, role, asked, share) for name, role in tasks.items()}
    for name, role in found.items():
        part = role.gpu_milli / 1000
        if not role.gpus:
            continue
        if share.limit is not None and share.limit < part:
            raise field.trouble(
                f"{field.path}.limit is {share.limit:g}, expected at least what {name} asks for ({part:g})"
            )
        if share.limit is not None and share.limit > part and share.mode and not MODES[share.mode].may_exceed:
            raise field.trouble(
                f"{field.path}.limit is {share.limit:g}, expected what {name} asks for ({part:g}): "
                f"mode {share.mode} gives no more"
            )
        if share.mode == MIG and role.gpu_milli not in MIG_PARTS:
            parts = ", ".join(f"{milli / 1000:g}" for milli in MIG_PARTS)
            raise field.trouble(f"{field.path}: mode mig with {part:g} of a GPU, expected one of {parts}")
        if share.mode == MIG and role.gpus > 1:
            raise field.trouble(
                f"{field.path}: mode mig with {role.gpus} GPUs for each task of {name}, expected 1: a process sees one "
                "MIG instance"
            )
    return found


def _with_share(field: Field, name: str, role: TaskRole, asked: dict[str, float], share: OfShare) -> TaskRole:
    if not role.gpus:
        return role
    for key, own, default in (("request", role.gpu_milli, 1000), ("memory_gib", role.gpu_mem_gib, 0.0)):
        if key in asked and own != default:
            theirs = "gpu_milli" if key == "request" else "gpu_mem_gib"
            raise field.trouble(f"{field.path}.{key} and {theirs} of role {name} are both given", hint="leave out one")
    milli = round(asked["request"] * 1000) if "request" in asked else role.gpu_milli
    memory_gib = asked.get("memory_gib", role.gpu_mem_gib) or share.persistent_gib + share.ephemeral_gib
    if share.persistent_gib + share.ephemeral_gib > memory_gib:
        raise field.trouble(f"{field.path}: persistent_gib and ephemeral_gib are more than the memory of {name}")
    return msgspec.structs.replace(role, gpu_milli=milli, gpu_mem_gib=memory_gib)


def _elastic(field: Field, tasks: dict[str, TaskRole], *, is_gang: bool) -> Elastic:
    """Only the elastic role has GPUs, so that the number of GPUs determines the number of tasks."""
    given = field.fields(tuple(ELASTIC), required=("min", "max"))
    least = fields.whole(given["min"], 1, fields.TASKS_MAX)
    most = fields.whole(given["max"], least, fields.TASKS_MAX)
    name = _elastic_role(field, given.get("role"), tasks)
    if not is_gang:
        raise field.trouble(f"{field.path}: an elastic job is a gang", hint="leave out gang: false")
    if not tasks[name].gpus or any(role.gpus for other, role in tasks.items() if other != name):
        raise field.trouble(f"{field.path}: the elastic role, and no other, has GPUs")
    if not least <= tasks[name].count <= most:
        raise field.trouble(f"{field.path}: count of {name} is {tasks[name].count}, expected {least} to {most}")
    return Elastic(name, least, most)


def _elastic_role(field: Field, role: Field | None, tasks: dict[str, TaskRole]) -> str:
    if role is None:
        if len(tasks) > 1:
            raise field.trouble(f"{field.path}.role is missing", hint=f"the job has {', '.join(tasks)}")
        return next(iter(tasks))
    name = role.text()
    if name not in tasks:
        raise role.trouble(f"{role.path}: unknown role {shorten(name)}{did_you_mean(name, tasks, start=', ')}")
    return name


def _refuse_task_retries(request: Request, given: dict[str, Field]) -> None:
    for name, role in request.tasks.items():
        if role.retries:
            field = given["tasks"].fields()[name].fields()["retries"]
            raise field.trouble(
                f"{field.path}: the tasks of a gang are retried together", hint="use retries of the job"
            )
