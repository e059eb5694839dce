"""Skep's own job file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.core.errors import did_you_mean
from skep.files.document import Field
from skep.files.text import shorten
from skep.jobs import fields
from skep.jobs.groups import ENDS_WHEN, KINDS, read_ends_when
from skep.jobs.request import Completion, Elastic, OfGroup, Request, TaskRole

OF_COMPLETION = ("min_failed", "min_succeeded")
OF_ELASTIC = ("role", "min", "max")
CHECKPOINTS = ("signal", "criu")
INDEX_MAX = 1_000_000
"""Jobs of a group, counted from 0."""
ONE_ROLE = "task"
"""The role of a job that is written without `tasks`."""

IMAGE_NOTED = "image: noted only, the local engine runs the command without a container"
LOCALITY_NOTED = "locality: noted only, no policy uses it yet"


def read_native(document: Field, user: str, warnings: list[str]) -> Request:
    given = document.fields(OF_ANY, required=("name",))
    tasks = _tasks(document, given, warnings)
    values: dict[str, Any] = {
        key: read(given[key]) for key, read in _OF_JOB.items() if key in given and not given[key].is_null
    }
    if user:
        values["user"] = user
    if "group" in given and not given["group"].is_null:
        values["group"], values["of_group"] = _group(given["group"])
    if "elastic" in given and not given["elastic"].is_null:
        values["elastic"] = _elastic(given["elastic"], tasks, is_gang=values.get("gang", True))
    if "locality" in values:
        warnings.append(LOCALITY_NOTED)
    if not values.get("preemptible", True) and values.get("priority", 0) < 0:
        raise given["preemptible"].trouble("preemptible: false: opportunistic work (priority oppo) must be")
    request = Request(name=fields.name(given["name"]), tasks=tasks, **values)
    if request.gang:
        _refuse_task_retries(request, given)
    return fields.checked(request, given.get("tasks", document))


def _tasks(document: Field, given: dict[str, Field], warnings: list[str]) -> dict[str, TaskRole]:
    """By role. Without `tasks`, what belongs to a role may stand beside the name: the job is then one role."""
    beside = [key for key in OF_ROLE if key in given]
    if "tasks" not in given:
        return {ONE_ROLE: _role(document, {key: given[key] for key in beside}, warnings)}
    if beside:
        field = given[beside[0]]
        raise field.trouble(f"{field.path} belongs to a role", hint="put it below tasks.<role>, or leave out tasks")
    roles = fields.mapping(given["tasks"], most=fields.ROLES_MAX)
    if not roles:
        raise given["tasks"].fault("at least one role")
    return {
        fields.role_name(field, name): _role(field, field.fields((*OF_ROLE, "retries")), warnings)
        for name, field in roles.items()
    }


def _role(field: Field, given: dict[str, Field], warnings: list[str]) -> TaskRole:
    values: dict[str, Any] = {key: _READERS_OF_ROLE[key](entry) for key, entry in given.items() if not entry.is_null}
    role = TaskRole(**values)
    where = f"{field.path}: " if field.path else ""
    if bool(role.command) == bool(role.argv):
        problem = "command and argv are both there" if role.command else "command (or argv) is missing"
        raise field.trouble(where + problem)
    if role.gpu_milli < 1000 and not role.gpus:
        raise given["gpu_milli"].trouble(f"{given['gpu_milli'].path} is there without gpus")
    if role.image:
        warnings.append(IMAGE_NOTED)
    return role


def _argv(field: Field) -> tuple[str, ...]:
    items = field.items()
    if not 0 < len(items) <= fields.LIST_MAX:
        raise field.fault(f"a list of 1 to {fields.LIST_MAX} arguments")
    return (fields.content(items[0], may_be_empty=False), *(fields.content(item) for item in items[1:]))


def _completion(field: Field) -> Completion:
    given = field.fields(OF_COMPLETION)
    return Completion(**{key: _tasks_or_none(entry) for key, entry in given.items()})


def _tasks_or_none(field: Field) -> int | None:
    return None if field.is_null else fields.whole(field, 1, fields.TASKS_MAX)


def _group(field: Field) -> tuple[str, OfGroup]:
    """A name, or a name and what is to hold for the group."""
    if not field.is_mapping:
        return fields.name(field), OfGroup()
    given = field.fields(("name", *_READERS_OF_GROUP), required=("name",))
    values = {key: read(given[key]) for key, read in _READERS_OF_GROUP.items() if key in given}
    return fields.name(given["name"]), OfGroup(**values)


def _kind(field: Field) -> str:
    kind = field.text()
    if kind not in KINDS:
        raise field.fault(f"one of {', '.join(KINDS)}")
    return kind


def _weight(field: Field) -> float:
    weight = fields.number(field, 1e6)
    if not weight:
        raise field.fault("a number above 0")
    return weight


def _ends_when(field: Field) -> str:
    text = field.text()
    if read_ends_when(text) is None:
        raise field.fault(f"one of {', '.join(ENDS_WHEN)}, min_succeeded=N, min_failed=N")
    return text


_READERS_OF_GROUP: dict[str, Callable[[Field], Any]] = {
    "kind": _kind,
    "role": lambda field: fields.role_name(field, field.text()),
    "index": lambda field: fields.whole(field, 0, INDEX_MAX),
    "weight": _weight,
    "ends_when": _ends_when,
}


def _elastic(field: Field, tasks: dict[str, TaskRole], *, is_gang: bool) -> Elastic:
    """Only the elastic role has gpus, so that a number of gpus says how many tasks there are."""
    given = field.fields(OF_ELASTIC, required=("min", "max"))
    least = fields.whole(given["min"], 1, fields.TASKS_MAX)
    most = fields.whole(given["max"], least, fields.TASKS_MAX)
    name = _elastic_role(field, given.get("role"), tasks)
    if not is_gang:
        raise field.trouble(f"{field.path}: an elastic job is a gang", hint="leave out gang: false")
    if not tasks[name].gpus or any(role.gpus for other, role in tasks.items() if other != name):
        raise field.trouble(f"{field.path}: the elastic role, and no other, has gpus")
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


def _checkpoint(field: Field) -> str:
    found = field.text()
    if found not in CHECKPOINTS:
        raise field.fault(" or ".join(CHECKPOINTS))
    return found


def _workdir(field: Field) -> str:
    text = field.raw.content
    if text == "":
        return ""
    folder = field.text("an absolute path")
    if not folder.startswith("/") or ".." in folder.split("/") or len(folder) > 4000:
        raise field.fault("an absolute path without ..")
    return folder


def _time_limit(field: Field) -> float:
    """Elsewhere 0 means none, here it would end the job at its start."""
    if seconds := fields.duration(field):
        return seconds
    raise field.fault("a duration above 0", hint="without time_limit_s there is no limit")


def _retries(field: Field) -> int:
    return fields.whole(field, -1, fields.RETRIES_MAX)


def _labels(field: Field) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fields.label(item, most=255) for item in fields.entries(field)))


_READERS_OF_ROLE: dict[str, Callable[[Field], Any]] = {
    "count": lambda field: fields.whole(field, 1, fields.TASKS_MAX),
    "gpus": fields.gpus,
    "gpu_type": fields.gpu_type,
    "gpu_milli": lambda field: fields.whole(field, 1, 1000),
    "gpu_mem_gib": lambda field: fields.number(field, 1e4),
    "cpu": lambda field: fields.number(field, 1e5),
    "memory_gib": lambda field: fields.number(field, 1e6),
    "ports": fields.ports,
    "command": fields.command,
    "argv": _argv,
    "env": fields.environment,
    "completion": _completion,
    "image": lambda field: fields.label(field, most=1000),
    "retries": _retries,
}
_OF_JOB: dict[str, Callable[[Field], Any]] = {
    "vc": fields.label,
    "pinned": fields.pinned,
    "user": fields.label,
    "priority": fields.priority,
    "gang": Field.flag,
    "locality": fields.label,
    "model": fields.label,
    "checkpoint": _checkpoint,
    "preemptible": Field.flag,
    "spans_types": Field.flag,
    "grace_s": lambda field: fields.duration(field, most=86_400),
    "expect_s": fields.duration,
    "time_limit_s": _time_limit,
    "deadline_s": fields.duration,
    "retries": _retries,
    "workdir": _workdir,
    "needs": _labels,
    "tags": _labels,
    "hold": Field.flag,
    "secrets": fields.environment,
}
OF_ROLE = tuple(key for key in _READERS_OF_ROLE if key != "retries")
"""What may also stand beside the name; `retries` there are those of the job."""
OF_ANY = ("name", *_OF_JOB, "group", "tasks", "elastic", "sweep", *OF_ROLE)
