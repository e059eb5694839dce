"""The fields of a job file: one table, from which the reader, the schema of the API and the reference page are made.

A field has a kind, which defines how its value is read and how that looks in JSON Schema and in text, and a help text.
Its default is the one in `request.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from skep.core.model import PRIORITIES
from skep.core.share import MODES, Claim, Tier
from skep.files.document import Field
from skep.jobs import fields, kube_fields
from skep.jobs.core import COUNT, ENDS_WHEN, KINDS, read_ends_when
from skep.jobs.request import Completion, Elastic, OfGroup, OfKube, OfShare, Request, TaskRole

Schema = dict[str, Any]
CHECKPOINTS = ("signal", "criu")
GRACE_MAX = 86_400
INDEX_MAX = 1_000_000
"""Jobs of a group, counted from 0."""
WEIGHT_MAX = 1e6
SCALAR = ["string", "number", "boolean", "null"]
DURATION_PATTERN = r"^[0-9]{1,12}(\.[0-9]{0,9})?\s?[smhd]$"


class Kind(msgspec.Struct, frozen=True):
    """The values that a field takes."""

    words: str
    """For the reference page."""
    schema: Schema
    read: Callable[[Field], Any] | None = None
    """None: `read.py` reads it together with other fields."""
    reads_null: bool = False
    """Otherwise `null` means the default."""


class JobField(msgspec.Struct, frozen=True):
    kind: Kind
    help: str
    default: str = ""
    """As text, if the value in `request.py` does not show it."""


Table = dict[str, JobField]


def whole(least: int, most: int, read: Callable[[Field], int] | None = None) -> Kind:
    schema: Schema = {"type": ["integer", "null"], "minimum": least, "maximum": most}
    return Kind(f"{least:,} to {most:,}", schema, read or (lambda field: fields.whole(field, least, most)))


def amount(most: float) -> Kind:
    schema: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": most}
    return Kind(f"0 to {most:,.0f}", schema, lambda field: fields.number(field, most))


def part_of_gpu(*, can_be_zero: bool = False) -> Kind:
    """A multiple of a thousandth, because GPUs are counted in thousandths."""
    least = 0.0 if can_be_zero else 0.001
    schema: Schema = {"type": ["number", "null"], "minimum": least, "maximum": 1}

    def read(field: Field) -> float:
        found = fields.number(field, 1)
        if found < least:
            raise field.fault(f"a number from {least:g} to 1")
        return found

    return Kind(f"{least:g} to 1", schema, read)


def word(read: Callable[[Field], str] = fields.label, words: str = "a word") -> Kind:
    return Kind(words, {"type": SCALAR}, read)


def duration(most: float = fields.SECONDS_MAX, *, can_be_zero: bool = True) -> Kind:
    schema: Schema = {"anyOf": [amount(most).schema, {"type": "string", "pattern": DURATION_PATTERN}]}
    if can_be_zero:
        limit = f", at most {most:,.0f} s" if most < fields.SECONDS_MAX else ""
        return Kind(f"a duration{limit}", schema, lambda field: fields.duration(field, most=most))
    return Kind("a duration above 0", schema | {"not": {"enum": [0]}}, _time_limit)


def choice(names: tuple[str, ...], *, can_be_empty: bool = False) -> Kind:
    def read(field: Field) -> str:
        if can_be_empty and field.raw.content == "":
            return ""
        found = field.text()
        if found not in names:
            raise field.fault(f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names))
        return found

    return Kind(" or ".join(f"`{name}`" for name in names), {"enum": [*names, *[""] * can_be_empty, None]}, read)


def mapping(
    value: Schema, pattern: str, words: str, read: Callable[[Field], Any] | None = None, most: int = fields.LIST_MAX
) -> Kind:
    names = {"pattern": f"^{pattern}$"}
    limits = {"propertyNames": names, "maxProperties": most}
    return Kind(words, {"type": ["object", "null"], "additionalProperties": value, **limits}, read)


def closed(table: Table, *required: str) -> Schema:
    """JSON Schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {name: field.kind.schema | {"description": field.help} for name, field in table.items()},
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def part(table: Table, words: str, read: Callable[[Field], Any] | None = None, *required: str) -> Kind:
    """A field that has fields of its own."""
    return Kind(words, {"anyOf": [closed(table, *required), {"type": "null"}]}, read)


def read_fields(given: Mapping[str, Field], table: Table) -> dict[str, Any]:
    """The values of the given fields that can be read independently."""
    values = {}
    for name, field in given.items():
        kind = table[name].kind if name in table else None
        if kind is not None and kind.read is not None and (kind.reads_null or not field.is_null):
            values[name] = kind.read(field)
    return values


# How single values are read ---------------------------------------------------------------------------------------


def _tasks_or_none(field: Field) -> int | None:
    return None if field.is_null else fields.whole(field, 1, fields.TASKS_MAX)


def _completion(field: Field) -> Completion:
    return Completion(**read_fields(field.fields(tuple(COMPLETION)), COMPLETION))


def _group(field: Field) -> tuple[str, OfGroup]:
    """A name, or a name and a description of the group."""
    if not field.is_mapping:
        return fields.name(field), OfGroup()
    values = read_fields(field.fields(tuple(GROUP), required=("name",)), GROUP)
    return values.pop("name"), OfGroup(**values)


def _share(field: Field) -> OfShare:
    """`read.py` moves the requested amounts into the roles."""
    given = field.fields(tuple(SHARE))
    values = read_fields(given, SHARE)
    for name in ("request", "memory_gib"):
        values.pop(name, None)
    if values.get("promise") and values.get("tier", "basic") != "basic":
        raise given["tier"].fault("no tier, or basic, if a promise is given")
    return OfShare(**values)


def _argv(field: Field) -> tuple[str, ...]:
    items = field.items()
    if not 0 < len(items) <= fields.LIST_MAX:
        raise field.fault(f"a list of 1 to {fields.LIST_MAX} arguments")
    return (fields.content(items[0], may_be_empty=False), *(fields.content(item) for item in items[1:]))


def _weight(field: Field) -> float:
    weight = fields.number(field, WEIGHT_MAX)
    if not weight:
        raise field.fault("a number above 0")
    return weight


def _ends_when(field: Field) -> str:
    text = field.text()
    if read_ends_when(text) is None:
        raise field.fault(f"one of {', '.join(ENDS_WHEN)}, min_succeeded=N, min_failed=N")
    return text


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


def _kubernetes(field: Field) -> OfKube:
    return OfKube(**read_fields(field.fields(tuple(KUBERNETES)), KUBERNETES))


def _search(field: Field) -> Any:
    from skep.jobs.search import read_rule  # few jobs are trials

    return read_rule(field)


def _labels(field: Field) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fields.label(item, most=255) for item in fields.entries(field)))


# Kinds that several fields have -----------------------------------------------------------------------------------

TEXT: Schema = {"type": SCALAR}
FLAG = Kind("`true` or `false`", {"type": ["boolean", "null"]}, Field.flag)
NAME = Kind(
    "letters, digits, `.`, `-`, `_`; no dot or dash first; at most 255",
    {"anyOf": [{"type": "string", "pattern": rf"^\s*{fields.NAME.pattern}\s*$"}, {"type": ["number", "boolean"]}]},
    fields.name,
    reads_null=True,
)
WORDS = Kind(
    "one or a list of words",
    {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": fields.LIST_MAX}]},
    _labels,
)
VARIABLES = mapping(TEXT, fields.VARIABLE.pattern, "names and values", fields.environment)
RETRIES = whole(-1, fields.RETRIES_MAX)
COUNT_OR_NULL = msgspec.structs.replace(whole(1, fields.TASKS_MAX, _tasks_or_none), reads_null=True)  # type: ignore[arg-type]

# The table --------------------------------------------------------------------------------------------------------

COMPLETION: Table = {
    "min_failed": JobField(COUNT_OR_NULL, "This many failed tasks of the role fail the job; `null`: never."),
    "min_succeeded": JobField(COUNT_OR_NULL, "This many succeeded tasks of the role make the job succeed."),
}
ROLE: Table = {
    "count": JobField(whole(1, fields.TASKS_MAX), "How many tasks."),
    "gpus": JobField(whole(0, fields.GPUS_MAX, fields.gpus), "Whole GPUs."),
    "gpu_type": JobField(
        word(fields.gpu_type, "a type, or several of which any will do: `v100|a100`"),
        "A gang is on one type: its roles name the same.",
        "any",
    ),
    "gpu_milli": JobField(
        whole(1, 1000),
        "Thousandths of each GPU; below 1000 it is shared. `gpus: 2, gpu_milli: 500` is half of each of two GPUs.",
    ),
    "gpu_mem_gib": JobField(amount(1e4), "Memory of each GPU, in GiB."),
    "cpu": JobField(amount(1e5), "CPUs."),
    "memory_gib": JobField(amount(1e6), "Memory, in GiB."),
    "node_tags": JobField(
        Kind("a list of expressions", {"type": ["array", "null"], "items": TEXT}, fields.node_tags),
        "What its nodes must have: `zone=a|b`, `zone!=a`, `ssd`, `!ssd`, `cores>16`; ` & ` joins, ` or ` lists "
        "alternatives.",
    ),
    "extras": JobField(
        mapping(
            {"type": "integer", "minimum": 1, "maximum": fields.EXTRAS_MAX},
            fields.EXTRA.pattern,
            "names of resources, each with a number",
            fields.extras,
            fields.EXTRAS_MAX,
        ),
        "Other countable resources of a node, such as `rdma/hca`.",
    ),
    "ports": JobField(
        mapping(
            {"type": "integer", "minimum": 1, "maximum": fields.PORTS_MAX},
            fields.ROLE.pattern,
            f"labels, each with 1 to {fields.PORTS_MAX}",
            fields.ports,
            fields.PORTS_MAX,
        ),
        "How many ports of each label.",
    ),
    "command": JobField(word(fields.command, "text, at most 128 KiB"), "Run by `bash -c`."),
    "argv": JobField(Kind("a list", {"type": ["array", "null"], "items": TEXT}, _argv), "Run as it is."),
    "env": JobField(VARIABLES, "Environment variables; those that Skep sets itself are refused."),
    "completion": JobField(
        part(COMPLETION, "`{min_failed, min_succeeded}`", _completion),
        "This many failed (succeeded) tasks of the role let the job fail (succeed); `null`: never. Otherwise it "
        "succeeds when all tasks have ended.",
        "`{min_failed: 1, min_succeeded: null}`",
    ),
    "image": JobField(
        word(lambda field: fields.label(field, most=1000)),
        "The container image; on one machine it needs podman.",
    ),
    "retries": JobField(RETRIES, "Of one task; only with `gang: false`."),
}
ELASTIC: Table = {
    "role": JobField(word(), "The role that grows and shrinks; may be left out if there is only one."),
    "min": JobField(whole(1, fields.TASKS_MAX), "The fewest tasks."),
    "max": JobField(whole(1, fields.TASKS_MAX), "The most tasks."),
}
WEIGHT = Kind(
    "above 0, at most 1,000,000", {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": WEIGHT_MAX}, _weight
)
GROUP: Table = {
    "name": JobField(NAME, "The name of the group; the same name of another user or VC is another group.", "required"),
    "kind": JobField(choice(KINDS), "A `sweep` sets it."),
    "role": JobField(
        Kind(
            "letters, digits, `_`",
            {"type": ["string", "null"], "pattern": f"^{fields.ROLE.pattern}$"},
            lambda field: fields.role_name(field, field.text()),
        ),
        "The role of the job in the group.",
    ),
    "index": JobField(whole(0, INDEX_MAX), "Its number there; a sweep counts its jobs from 0."),
    "weight": JobField(
        WEIGHT,
        "Its weight against other groups, for policies that share between groups.",
    ),
    "ends_when": JobField(
        Kind(
            f"{', '.join(f'`{name}`' for name in ENDS_WHEN)}, `min_succeeded=N`, `min_failed=N`",
            {"anyOf": [{"enum": [*ENDS_WHEN, None]}, {"type": "string", "pattern": f"^{COUNT.pattern}$"}]},
            _ends_when,
        ),
        "`all-ended`: no member is stopped; `never`: only a policy ends the group; the others: members that have not "
        "ended then are stopped, with that as their reason.",
    ),
    "search": JobField(
        Kind("a mapping", {"type": ["object", "null"]}, _search),
        "The rule of a search of which it is a trial; a `search` beside the name sets it.",
    ),
}
SHARE: Table = {
    "mode": JobField(
        choice(tuple(MODES), can_be_empty=True),
        "How it shares its GPUs; what each mode promises is in the guide. Otherwise the policy decides.",
    ),
    "request": JobField(
        part_of_gpu(),
        "The part of each GPU that it asks for: `0.3` is `gpu_milli: 300` of all roles with GPUs.",
        "`gpu_milli`",
    ),
    "limit": JobField(
        part_of_gpu(),
        "The most that it may use of each GPU; at least the requested part, and in modes `exclusive`, `mps` and `mig` "
        "no more.",
        "as much as the mode allows",
    ),
    "memory_gib": JobField(
        amount(1e4),
        "Memory of each GPU: `gpu_mem_gib` of all roles with GPUs.",
        "`gpu_mem_gib`; else persistent and ephemeral memory together",
    ),
    "weight": JobField(whole(1, 1000), "Its weight against other jobs on the same GPUs."),
    "affinity": JobField(word(), "KubeShare: only beside jobs of the same label, or on a new GPU."),
    "anti_affinity": JobField(word(), "KubeShare: never beside jobs of the same label."),
    "exclusion": JobField(word(), "KubeShare: only beside jobs of the same label."),
    "persistent_gib": JobField(amount(1e4), "Salus: GPU memory that it needs all the time."),
    "ephemeral_gib": JobField(amount(1e4), "Salus: GPU memory that it needs within a step, at most."),
    "claim": JobField(
        choice(get_args(Claim)),
        "AntMan: `guaranteed` runs as if alone, `opportunistic` uses what others leave idle, `auto` is either.",
    ),
    "promise": JobField(
        part_of_gpu(can_be_zero=True),
        "Singularity: the part of the GPU time it asks for that it is to get in every hour, instead of a `tier`.",
        "what its tier is promised",
    ),
    "tier": JobField(
        choice(get_args(Tier)),
        "Singularity: `premium` and `standard` are promised a part of every hour, `basic` gets what is left.",
    ),
}
CLAIM_NAME: Schema = {"type": "string", "pattern": f"^{kube_fields.OBJECT_NAME.pattern}$"}
KUBERNETES: Table = {
    "volumes": JobField(
        mapping(CLAIM_NAME, "/.+", "paths, each with the name of a volume claim", kube_fields.claims),
        "Volume claims of the namespace, by the path where they are mounted.",
    ),
    "shm_gib": JobField(
        amount(1e4), "The size of `/dev/shm`; it counts as memory of the pod.", "as the runtime has it"
    ),
    "pull_secrets": JobField(
        msgspec.structs.replace(WORDS, words="one or a list of names", read=kube_fields.object_names),
        "Secrets with which images are pulled.",
    ),
    "service_account": JobField(
        word(kube_fields.service_account, "a name"), "The account of its pods. Without one they get no token.", "none"
    ),
    "node_selector": JobField(
        mapping(TEXT, kube_fields.LABEL_KEY.pattern, "labels and values", kube_fields.node_selector),
        "Labels that a node must have. The node itself rejects a pod that does not fit.",
    ),
    "tolerations": JobField(
        msgspec.structs.replace(WORDS, words="one or a list of keys", read=kube_fields.taint_keys),
        "Keys of taints it tolerates.",
    ),
}
JOB: Table = {
    "name": JobField(NAME, "The name of the job.", "required"),
    "tasks": JobField(
        mapping(closed(ROLE), fields.ROLE.pattern, "roles by name (letters, digits, `_`)", most=fields.ROLES_MAX),
        f"See below; at most {fields.ROLES_MAX} roles and {fields.TASKS_MAX:,} tasks.",
    ),
    "vc": JobField(
        word(),
        "The virtual cluster. Without one: `default` if that has GPUs, else the largest that the user may use.",
    ),
    "pinned": JobField(
        word(fields.pinned),
        "A pinned cell of the virtual cluster, by the name it has in the cluster file: the job "
        "runs there and nowhere else. Not for opportunistic work.",
        "none, and no pinned cell is used",
    ),
    "user": JobField(word(), "Used only if the submission itself has no user."),
    "priority": JobField(
        Kind(
            "-1 to 1,000, or " + ", ".join(f"`{name}` ({number})" for name, number in PRIORITIES.items()),
            {"anyOf": [whole(-1, 1000).schema, {"enum": list(PRIORITIES)}]},
            fields.priority,
        ),
        "Higher comes first and preempts lower ones of the VC, under every policy; -1 is opportunistic. With tokens, "
        "more than `test` needs a grant.",
        "`test`",
    ),
    "weight": JobField(WEIGHT, "Its weight against other jobs, for policies that divide GPU time between jobs."),
    "gang": JobField(FLAG, "All tasks start together or none; `false`: each starts when it can."),
    "elastic": JobField(
        part(ELASTIC, "`{role, min, max}`", None, "min", "max"),
        "Runs with `min` to `max` tasks of `role`; `count` is the requested number. `role` may be left out if there is "
        "only one; no other role has GPUs.",
    ),
    "locality": JobField(word(), "Recorded only; no policy uses it yet."),
    "model": JobField(word(), "What is trained, for policies and profiles that know models."),
    "checkpoint": JobField(
        choice(CHECKPOINTS), "How it is asked to save itself; `criu` freezes a single process as it is."
    ),
    "preemptible": JobField(
        FLAG, "Whether it may be stopped for others once it runs; `false` also keeps it off lent cells."
    ),
    "spans_types": JobField(
        FLAG,
        "Whether the gang may sit on several GPU types at once; it then runs at the speed of its slowest member.",
    ),
    "grace_s": JobField(duration(GRACE_MAX), "From SIGTERM to SIGKILL."),
    "expect_s": JobField(duration(), "How long it is expected to run."),
    "time_limit_s": JobField(duration(can_be_zero=False), "How long it may run.", "no limit"),
    "deadline_s": JobField(duration(), "When it should be done, after its submission."),
    "retries": JobField(RETRIES, "Retries after failures that a retry may cure, see below; -1: without limit."),
    "workdir": JobField(
        word(_workdir, "an absolute path"),
        "Where its tasks run.",
        "with `skep submit` the folder it is called in, else an empty folder of the job",
    ),
    "group": JobField(
        Kind("a name, or a mapping", {"anyOf": [NAME.schema, closed(GROUP, "name"), {"type": "null"}]}, _group),
        "Jobs that belong together, see below.",
    ),
    "needs": JobField(
        WORDS,
        "Jobs, by name or id, that must succeed before it starts; a name may be that of a job before it in the same "
        "submission.",
    ),
    "tags": JobField(WORDS, "Words for searching and filtering."),
    "hold": JobField(FLAG, "Wait until it is released."),
    "secrets": JobField(VARIABLES, "Variables for every task that are never shown."),
    "share": JobField(
        part(SHARE, "a mapping, see below", _share),
        "How it shares its GPUs with other jobs. Policies ignore what they do not support.",
        "as the policy decides",
    ),
    "kubernetes": JobField(
        part(KUBERNETES, "a mapping, see below", _kubernetes),
        "What its pods need; the local engine ignores it.",
    ),
    "parameters": JobField(
        mapping(
            {"type": SCALAR}, fields.VARIABLE.pattern, "names and values", fields.parameters, fields.PARAMETERS_MAX
        ),
        "What distinguishes it from others of its group; a `sweep` sets them.",
    ),
    "sweep": JobField(
        Kind("names, each with a list of values", {"type": ["object", "null"], "additionalProperties": WORDS.schema}),
        "See below.",
    ),
    "search": JobField(
        Kind("a mapping", {"type": ["object", "null"]}), "Trials of which a rule stops some; see below."
    ),
}
BESIDE_NAME: Table = {name: field for name, field in ROLE.items() if name != "retries"}
"""Fields of a role that may also stand beside the name; `retries` there are those of the job."""
STRUCTS: tuple[tuple[Table, type[msgspec.Struct]], ...] = (
    (JOB, Request),
    (ROLE, TaskRole),
    (COMPLETION, Completion),
    (ELASTIC, Elastic),
    (GROUP, OfGroup),
    (SHARE, OfShare),
    (KUBERNETES, OfKube),
)
"""The struct that has the values, and so the defaults, of a table."""


def shown_default(table: Table, name: str) -> str:
    """In Markdown; empty if there is none, or an empty one."""
    if table[name].default:
        return table[name].default
    struct = next((struct for each, struct in STRUCTS if each is table), None)
    default = (
        {} if struct is None else {field.name: field.default for field in msgspec.structs.fields(struct)}.get(name)
    )
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"{default:g}"
    return f"`{default}`" if isinstance(default, str) and default else ""
