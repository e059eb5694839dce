"""Reads what a user submits: Skep's own job file or OpenPAI's, one job or many, as YAML, JSON or values.

There is one set of rules, here and in `openpai.py`, on values that may have a line number. JSON is first read
quickly and without line numbers; only if it has an error it is read again as a document, to name the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

from skep.core.errors import InputError, did_you_mean
from skep.core.share import MIG, MIG_PARTS, MODES
from skep.files.document import Field, read_document
from skep.files.text import shorten
from skep.jobs import fields
from skep.jobs.openpai import read_openpai
from skep.jobs.request import Elastic, OfShare, Request, TaskRole
from skep.jobs.sweep import JOBS_MAX, swept
from skep.jobs.table import BESIDE_NAME, ELASTIC, JOB, ROLE, SHARE, read_fields

SIZE_MAX = 2**20
"""The largest file of jobs in bytes."""
VALUES_MAX = 200_000
LENGTH_MAX = 16 * SIZE_MAX
"""The most values and characters of a file of jobs, its aliases expanded."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Reading(msgspec.Struct, frozen=True):
    requests: list[Request]
    warnings: list[str]
    """What is accepted but ignored, each once."""


def read_requests(text: str, source: str = "job.yaml", user: str = "") -> Reading:
    """The jobs of a file. Their user is `user`; without one, the user named in the file."""
    refuse_no_text(text, source)
    if text.lstrip()[:1] not in ("{", "["):
        return read_field(read_document(text, source), user)
    values = _from_json(text)
    if values is None:
        return read_field(read_document(text, source), user)
    try:
        return from_mapping(values, source, user)
    except InputError as fault:
        return read_field(_document_or(fault, text, source), user)


def from_mapping(value: object, source: str = "the job", user: str = "") -> Reading:
    """The jobs of values that were read by other means: a mapping, or a list of them."""
    if not isinstance(value, list) or not value:
        return _read([Field(source, "", fields.raw_of(value, source))], user)
    # One after the other, so that a batch is not in memory twice.
    return _read((Field(source, f"[{at}]", fields.raw_of(job, source)) for at, job in enumerate(value)), user)


def read_field(document: Field, user: str) -> Reading:
    """The jobs of a document."""
    return _read(_jobs(document), user)


def refuse_no_text(text: str, source: str) -> None:
    if len(text) > SIZE_MAX or len(text.encode(errors="replace")) > SIZE_MAX:
        raise InputError(f"{source}: is larger than 1 MiB, expected a job file")
    if not text.strip():
        raise InputError(f"{source}: is empty, expected a job file")
    if "\0" in text or _SURROGATE.search(text):
        raise InputError(f"{source}: is not a text file, expected a job file")
    refuse_script(text, source)


def _from_json(text: str) -> dict[str, object] | list[object] | None:
    """None if it is not JSON, or has a repeated key: it may still be read as YAML, which reports the error."""
    try:
        values: dict[str, object] | list[object] = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return values


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _document_or(fault: InputError, text: str, source: str) -> Field:
    """JSON that is not YAML, because of surrogate pairs, keeps the error that was found first."""
    try:
        return read_document(text, source)
    except InputError:
        raise fault from None


def _jobs(document: Field) -> list[Field]:
    if document.raw.size > VALUES_MAX or fields.length(document.raw) > LENGTH_MAX:
        raise document.trouble("is too large with its aliases expanded", hint="write several files")
    return document.items() if document.is_list and document.raw.content else [document]


def _read(jobs: Iterable[Field], user: str) -> Reading:
    requests: list[Request] = []
    warnings: list[str] = []
    for job in jobs:
        if job.raw.size > fields.VALUES_MAX:
            raise job.trouble(f"a job has more than {fields.VALUES_MAX:,} values")
        requests += _requests(job, user, warnings)
        if len(requests) > JOBS_MAX:
            raise InputError(f"{job.file}: has more than {JOBS_MAX:,} jobs", hint="submit them in several files")
    return Reading(requests, list(dict.fromkeys(warnings)))


def _requests(job: Field, user: str, warnings: list[str]) -> list[Request]:
    if fields.has_key(job, "protocolVersion"):
        return [read_openpai(job, user, warnings)]
    jobs = searched(job) if fields.has_key(job, "search") else swept(job) if fields.has_key(job, "sweep") else [job]
    return [read_native(one, user, warnings) for one in jobs]


def searched(job: Field) -> Iterable[Field]:
    from skep.jobs.search import trials  # few jobs are searches

    return trials(job)


SBATCH = "#SBATCH"
LINE_MAX = 200
_OPTIONS = {
    **{"-J": "--name", "--job-name": "--name", "-t": "--time-limit", "--time": "--time-limit"},
    **{"-G": "--gpus", "--gpus": "--gpus", "--gpus-per-node": "--gpus", "--gres": "--gpus"},
    **{"-c": "--cpu", "--cpus-per-task": "--cpu"},
}
_GPUS = re.compile(r"(?:[A-Za-z][\w-]*:)?(\d{1,6})")
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d\d))?(?::(\d\d))?")


def refuse_script(text: str, source: str) -> None:
    """A script is not a job file; the hint is the command that submits it."""
    lines = text.splitlines()
    asked = [number for number, line in enumerate(lines, 1) if line.startswith(SBATCH)]
    if not asked and not text.startswith("#!"):
        return
    kind = "a batch script of Slurm" if asked else "a script"
    options = "".join(f" {option}" for option in dict.fromkeys(map(_option, lines)) if option)
    file = source if "/" in source or "." in source else "FILE"
    hint = f"`skep run --detach{options} -- bash {file}` runs it" + (
        "; #SBATCH lines are comments there, and a job array is a sweep" if asked else ""
    )
    line = asked[0] if asked else 1
    said = f"is {kind}, expected a job file"
    raise InputError(f"{source}:{line}: {said}", hint=hint).at("", line, said)


def _option(line: str) -> str:
    """The option of `skep run` for a line of #SBATCH; empty if there is none."""
    words = line[:LINE_MAX].partition(" #")[0].replace("=", " ", 1).split()
    name, value = words[1:] if len(words) == 3 and words[0] == SBATCH else ("", "")
    option = _OPTIONS.get(name, "")
    if option == "--gpus":
        kind, _, rest = value.partition(":") if name == "--gres" else ("gpu", "", value)
        gpus = _GPUS.fullmatch(rest) if kind == "gpu" else None
        return f"--gpus {gpus[1]}" if gpus else ""
    if option == "--time-limit":
        return _time_limit(value)
    is_plain = re.fullmatch(r"[\w.-]{1,80}", value) is not None
    return f"{option} {value}" if option and is_plain and (option == "--name" or value.isdecimal()) else ""


def _time_limit(value: str) -> str:
    """Of Slurm's minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    found = _TIME.fullmatch(value)
    if found is None:
        return ""
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1]:
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif found[4]:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    shown = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    return f"--time-limit {shown}" if seconds else ""


OF_ANY = tuple(dict.fromkeys([*JOB, *BESIDE_NAME]))
ONE_ROLE = "task"
"""The role of a job that is written without `tasks`."""

OF_ROLES = ("request", "memory_gib")
"""The keys of `share` that belong to the roles."""

LOCALITY_NOTED = "locality: recorded only, no policy uses it yet"


def read_native(document: Field, user: str, warnings: list[str]) -> Request:
    given = document.fields(OF_ANY, required=("name",))
    tasks = _tasks(document, given)
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
    elif request.of_group.search is not None:
        raise given["gang"].trouble("gang: false: a trial of a search starts all of its tasks together")
    return fields.checked(request, given.get("tasks", document))


def _tasks(document: Field, given: dict[str, Field]) -> dict[str, TaskRole]:
    """By role. Without `tasks`, the fields of a role may stand beside the name: the job then has one role."""
    beside = [key for key in BESIDE_NAME if key in given]
    if "tasks" not in given:
        return {ONE_ROLE: _role(document, {key: given[key] for key in beside})}
    if beside:
        field = given[beside[0]]
        raise field.trouble(f"{field.path} belongs to a role", hint="put it below tasks.<role>, or leave out tasks")
    roles = fields.mapping(given["tasks"], most=fields.ROLES_MAX)
    if not roles:
        raise given["tasks"].fault("at least one role")
    return {fields.role_name(field, name): _role(field, field.fields(tuple(ROLE))) for name, field in roles.items()}


def _role(field: Field, given: dict[str, Field]) -> TaskRole:
    role = TaskRole(**read_fields(given, ROLE))
    where = f"{field.path}: " if field.path else ""
    if bool(role.command) == bool(role.argv):
        problem = "command and argv are both given" if role.command else "command (or argv) is missing"
        raise field.trouble(where + problem)
    if role.gpu_milli < 1000 and not role.gpus:
        raise given["gpu_milli"].trouble(f"{given['gpu_milli'].path} is given without GPUs")
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
