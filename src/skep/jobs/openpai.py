"""OpenPAI's job protocol, version 2, read as published.

What OpenPAI refuses is refused here, with a line number. Features beyond running a command in a place (images,
storages, plugins, mails) are ignored with a warning.
"""

from __future__ import annotations

import re

from skep.core.errors import did_you_mean
from skep.files.document import Field
from skep.files.text import shorten
from skep.jobs import fields
from skep.jobs.openpai_extras import Extras, read_extras
from skep.jobs.openpai_text import TextContext, read_secrets
from skep.jobs.request import Completion, OfKube, Request, TaskRole

OF_JOB = (
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "prerequisites",
    "parameters",
    "secrets",
    "jobRetryCount",
    "taskRoles",
    "deployments",
    "defaults",
    "extras",
)
OF_ROLE = (
    "instances",
    "completion",
    "taskRetryCount",
    "prerequisites",
    "dockerImage",
    "data",
    "output",
    "script",
    "extraContainerOptions",
    "resourcePerInstance",
    "commands",
)
OF_RESOURCE = ("cpu", "memoryMB", "gpu", "ports")
OF_IMAGE = ("protocolVersion", "name", "type", "version", "contributor", "description", "auth", "uri")
OF_AUTH = ("username", "password", "registryuri")
KINDS = ("dockerimage", "script", "output", "data")
STANDARD_PORTS = {"ssh": 1, "http": 1}
"""The default completion of every task of OpenPAI."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}")
_MIB_MAX, _SHM_MIB_MAX = 10**9, 10**7
SHM_MIB = 512
"""Of `/dev/shm`, unless a file says otherwise; container runtimes have 64, which is too little for data loaders."""


def read_openpai(document: Field, user: str, warnings: list[str]) -> Request:
    given = document.fields(OF_JOB, required=("protocolVersion", "name", "type", "taskRoles"))
    _expect(given["protocolVersion"], "2")
    _expect(given["type"], "job")
    roles = fields.mapping(given["taskRoles"], most=fields.ROLES_MAX)
    if not roles:
        raise given["taskRoles"].fault("at least one role")
    extras = read_extras(given.get("extras"), roles, warnings)
    secrets = read_secrets(given.get("secrets"))
    reader = _RoleReader(given, extras, secrets, warnings)
    request = Request(
        name=fields.word(
            given["name"], _NAME, "a name of letters, digits, dashes (not first) and underscores, at most 255"
        ),
        tasks={fields.role_name(field, name): reader.role(name, field) for name, field in roles.items()},
        vc=_virtual_cluster(given, warnings),
        pinned=extras.pinned,
        user=user,
        priority=extras.priority,
        gang=extras.gang,
        retries=_whole(given, "jobRetryCount", least=0, most=fields.RETRIES_MAX, default=0),
        secrets=secrets,
        kubernetes=OfKube(shm_gib=max(map(_shm_mib, roles.values())) / 1024),
    )
    return fields.checked(request, given["taskRoles"])


class _RoleReader:
    """Reads the roles of a job whose shared parts are known."""

    def __init__(self, given: dict[str, Field], extras: Extras, secrets: dict[str, str], warnings: list[str]) -> None:
        self.parameters = given.get("parameters")
        self.prerequisites = _prerequisites(given.get("prerequisites"))
        self.wraps = _deployment(given)
        self.extras = extras
        self.secrets = secrets
        self.warnings = warnings

    def role(self, name: str, field: Field) -> TaskRole:
        given = field.fields(OF_ROLE, required=("dockerImage", "resourcePerInstance", "commands"))
        count = _whole(given, "instances", least=1, most=fields.TASKS_MAX, default=1)
        resource = given["resourcePerInstance"].fields(OF_RESOURCE, required=OF_RESOURCE[:3])
        sku = self.extras.skus.get(name)
        gpus = fields.whole(resource["gpu"], 0, fields.GPUS_MAX)
        context = self._context(given)
        self._note_options(given)
        return TaskRole(
            count=count,
            gpus=sku.number if sku is not None and sku.number else gpus,
            gpu_type=sku.type if sku is not None else "",
            cpu=fields.whole(resource["cpu"], 0, 100_000),
            memory_gib=fields.whole(resource["memoryMB"], 0, _MIB_MAX) / 1024,
            ports=STANDARD_PORTS | _ports(resource.get("ports")),
            command=self._command(name, given["commands"], context),
            completion=_completion(given.get("completion"), count),
            retries=self._retries(given),
            image=self._image(given["dockerImage"], context),
        )

    def _retries(self, given: dict[str, Field]) -> int:
        """Tasks of a gang are not retried one by one, whatever the file says."""
        retries = _whole(given, "taskRetryCount", least=-1, most=fields.RETRIES_MAX, default=0)
        return 0 if self.extras.gang else retries

    def _command(self, name: str, commands: Field, context: TextContext) -> str:
        before, after = self.wraps.get(name, ([], []))
        lines = [*before, *_commands(commands), *after]
        text = "\n".join(context.render(line) for line in lines)
        if not text.strip() or len(text.encode()) > fields.TEXT_MAX:
            raise commands.fault(f"1 to {fields.TEXT_MAX:,} bytes of commands")
        return text

    def _context(self, given: dict[str, Field]) -> TextContext:
        """The prerequisites of a role by kind, and the parameters."""
        found = {} if self.parameters is None else {"parameters": self.parameters}
        for kind in ("script", "output", "data"):
            if kind in given:
                found[kind] = self._prerequisite(given[kind], kind)
        for item in fields.entries(given["prerequisites"]) if "prerequisites" in given else []:
            self._prerequisite(item, None)
        return TextContext(found, self.secrets)

    def _prerequisite(self, field: Field, kind: str | None) -> Field:
        """The prerequisite of this name and kind; without a kind, of any."""
        name = field.text()
        for (its_kind, its_name), found in self.prerequisites.items():
            if its_name == name and kind in (None, its_kind):
                return found
        names = [its_name for its_kind, its_name in self.prerequisites if kind in (None, its_kind)]
        problem = f"{field.path}: no prerequisite {shorten(name)}" + (f" of type {kind}" if kind else "")
        raise field.trouble(problem + did_you_mean(name, names, start=", "))

    def _image(self, field: Field, context: TextContext) -> str:
        """The format demands one: `none` is a plain process."""
        given = self._prerequisite(field, "dockerimage").fields()
        if "auth" in given:
            self.warnings.append("prerequisites.auth: not used; `pull_secrets` of the server, or of a Skep file, are")
        image = context.render(given["uri"])
        return "" if image == "none" else image

    def _note_options(self, given: dict[str, Field]) -> None:
        if "extraContainerOptions" in given:
            options = given["extraContainerOptions"].fields(("shmMB", "infiniband"))
            if "infiniband" in options and options["infiniband"].flag():
                self.warnings.append("extraContainerOptions.infiniband: not used")


def _shm_mib(role: Field) -> int:
    """The size of `/dev/shm` in its container."""
    given = role.fields()
    options = given["extraContainerOptions"].fields() if "extraContainerOptions" in given else {}
    return _whole(options, "shmMB", least=0, most=_SHM_MIB_MAX, default=SHM_MIB)


def _prerequisites(field: Field | None) -> dict[tuple[str, str], Field]:
    found: dict[tuple[str, str], Field] = {}
    items = fields.entries(field) if field is not None else []
    if field is not None and not items:
        raise field.fault("at least one prerequisite")
    for item in items:
        given = item.fields(required=("name", "type"))
        kind, name = given["type"].text(), given["name"].text()
        if kind not in KINDS:
            raise given["type"].fault(f"one of {', '.join(KINDS)}")
        if (kind, name) in found:
            raise item.trouble(f"{item.path}: the {kind} {shorten(name)} is given twice")
        _check_prerequisite(item, kind, given)
        found[kind, name] = item
    return found


def _check_prerequisite(item: Field, kind: str, given: dict[str, Field]) -> None:
    if kind == "dockerimage":
        item.fields(OF_IMAGE, required=("uri",))
        fields.content(given["uri"], may_be_empty=False)
        if "auth" in given:
            given["auth"].fields(OF_AUTH)
    elif "uri" in given and kind == "data":
        for uri in given["uri"].items():
            fields.content(uri)
    elif "uri" in given:
        fields.content(given["uri"])


def _deployment(given: dict[str, Field]) -> dict[str, tuple[list[Field], list[Field]]]:
    """By role, what the chosen deployment runs before and after its commands."""
    deployments = _deployments(given.get("deployments"), given["taskRoles"].fields())
    defaults = given["defaults"].fields() if "defaults" in given else {}
    if "deployment" not in defaults:
        return {}
    chosen = defaults["deployment"]
    name = chosen.text()
    if name not in deployments:
        near = did_you_mean(name, deployments, start=", ")
        raise chosen.trouble(f"{chosen.path}: no deployment {shorten(name)}{near}")
    return deployments[name]


def _deployments(field: Field | None, roles: dict[str, Field]) -> dict[str, dict[str, tuple[list[Field], list[Field]]]]:
    found: dict[str, dict[str, tuple[list[Field], list[Field]]]] = {}
    for item in fields.entries(field) if field is not None else []:
        given = item.fields(("name", "taskRoles"), required=("name", "taskRoles"))
        name = given["name"].text()
        if name in found:
            raise item.trouble(f"{item.path}: the deployment {shorten(name)} is given twice")
        found[name] = {role: _wrap(role, entry, roles) for role, entry in given["taskRoles"].fields().items()}
    return found


def _wrap(role: str, field: Field, roles: dict[str, Field]) -> tuple[list[Field], list[Field]]:
    if role not in roles:
        near = did_you_mean(role, roles, start=", ")
        raise field.trouble(f"{shorten(field.path)}: unknown role{near}")
    given = field.fields(("preCommands", "postCommands"))
    before, after = (_commands(given[key]) if key in given else [] for key in ("preCommands", "postCommands"))
    return before, after


def _commands(field: Field) -> list[Field]:
    items = field.items()
    if not 0 < len(items) <= fields.LIST_MAX:
        raise field.fault(f"a list of 1 to {fields.LIST_MAX:,} commands")
    return items


def _completion(field: Field | None, count: int) -> Completion:
    """OpenPAI's server lets a job succeed when all tasks of any role have succeeded, unless configured otherwise."""
    given = field.fields(("minFailedInstances", "minSucceededInstances")) if field is not None else {}
    failed, succeeded = given.get("minFailedInstances"), given.get("minSucceededInstances")
    return Completion(
        min_failed=1 if failed is None else _instances(failed),
        min_succeeded=count if succeeded is None else _instances(succeeded),
    )


def _instances(field: Field) -> int | None:
    if field.is_null or field.raw.content == "-1":
        return None
    return fields.whole(field, 1, fields.TASKS_MAX)


def _ports(field: Field | None) -> dict[str, int]:
    if field is None:
        return {}
    found = fields.ports(field)
    if not found:
        raise field.fault("at least one label")
    return found


def _virtual_cluster(given: dict[str, Field], warnings: list[str]) -> str:
    defaults = given["defaults"].fields() if "defaults" in given else {}
    warnings += [
        f"defaults.{shorten(key)}: not used" for key in defaults if key not in ("deployment", "virtualCluster")
    ]
    return fields.label(defaults["virtualCluster"]) if "virtualCluster" in defaults else "default"


def _whole(given: dict[str, Field], key: str, *, least: int, most: int, default: int) -> int:
    return fields.whole(given[key], least, most) if key in given else default


def _expect(field: Field, word: str) -> None:
    if field.text() != word:
        raise field.fault(word)
