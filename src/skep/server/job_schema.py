"""What a job looks like, for `/openapi.json`. The rules themselves are those of `skep.jobs`, which say more."""

from __future__ import annotations

from skep.jobs.fields import GPUS_MAX, LIST_MAX, NAME, ROLE, SECONDS_MAX, TASKS_MAX, VARIABLE
from skep.jobs.groups import COUNT, ENDS_WHEN, KINDS
from skep.jobs.native import INDEX_MAX
from skep.service.values import Json

Schema = Json
SCALAR = ["string", "number", "boolean", "null"]


def whole(least: int, most: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most}


def amount(most: float) -> Schema:
    return {"type": ["number", "null"], "minimum": 0, "maximum": most}


def mapping(value: Schema, pattern: str) -> Schema:
    names = {"pattern": f"^{pattern}$"}
    return {
        "type": ["object", "null"],
        "additionalProperties": value,
        "propertyNames": names,
        "maxProperties": LIST_MAX,
    }


def closed(properties: dict[str, Schema], *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


WORD: Schema = {"type": SCALAR, "description": "A word; numbers are words too where one is expected."}
TEXT: Schema = {"type": SCALAR}
FLAG: Schema = {"type": ["boolean", "null"]}
NAMED: Schema = {"anyOf": [{"type": "string", "pattern": rf"^\s*{NAME.pattern}\s*$"}, {"type": ["number", "boolean"]}]}
WORDS: Schema = {"anyOf": [WORD, {"type": "array", "items": WORD, "maxItems": LIST_MAX}]}
DURATION: Schema = {
    "description": "Seconds, or 90s, 10m, 2h, 1d.",
    "anyOf": [amount(SECONDS_MAX), {"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{0,9})?\s?[smhd]$"}],
}
COMPLETION = closed({"min_failed": whole(1, TASKS_MAX), "min_succeeded": whole(1, TASKS_MAX)})
OF_ROLE: dict[str, Schema] = {
    "count": whole(1, TASKS_MAX),
    "gpus": whole(0, GPUS_MAX),
    "gpu_type": WORD,
    "gpu_milli": whole(1, 1000),
    "gpu_mem_gib": amount(1e4),
    "cpu": amount(1e5),
    "memory_gib": amount(1e6),
    "ports": mapping({"type": "integer"}, ROLE.pattern),
    "command": TEXT | {"description": "Run by bash."},
    "argv": {"type": ["array", "null"], "items": TEXT, "description": "Run as it is, instead of command."},
    "env": mapping(TEXT, VARIABLE.pattern),
    "completion": {"anyOf": [COMPLETION, {"type": "null"}]},
    "image": WORD,
}
ELASTIC = closed({"role": WORD, "min": whole(1, TASKS_MAX), "max": whole(1, TASKS_MAX)}, "min", "max")
GROUP = closed(
    {
        "name": NAMED,
        "kind": {"enum": list(KINDS)},
        "role": {"type": "string", "pattern": f"^{ROLE.pattern}$"},
        "index": whole(0, INDEX_MAX),
        "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6},
        "ends_when": {"anyOf": [{"enum": list(ENDS_WHEN)}, {"type": "string", "pattern": f"^{COUNT.pattern}$"}]},
    },
    "name",
)
RETRIES = whole(-1, 1_000_000)
OF_JOB: dict[str, Schema] = {
    "name": NAMED,
    **{key: WORD for key in ("vc", "pinned", "user", "locality", "model", "workdir")},
    **{key: FLAG for key in ("gang", "preemptible", "spans_types", "hold")},
    **{key: DURATION for key in ("grace_s", "expect_s", "deadline_s")},
    "time_limit_s": DURATION | {"not": {"enum": [0]}, "description": "As the others, but above 0."},
    **{key: WORDS for key in ("needs", "tags")},
    "group": {"anyOf": [NAMED, GROUP, {"type": "null"}]},
    "priority": {"anyOf": [whole(-1, 1000), {"enum": ["oppo", "test", "prod"]}]},
    "checkpoint": {"enum": ["signal", "criu", None]},
    "retries": RETRIES,
    "secrets": mapping(TEXT, VARIABLE.pattern),
    "tasks": mapping(closed({**OF_ROLE, "retries": RETRIES}), ROLE.pattern),
    "elastic": {"anyOf": [ELASTIC, {"type": "null"}]},
    "sweep": {"type": ["object", "null"], "additionalProperties": WORDS},
}
NATIVE = closed({**OF_JOB, **OF_ROLE}, "name")
OPENPAI: Schema = {
    "type": "object",
    "description": "OpenPAI's job protocol, version 2.",
    "required": ["protocolVersion", "name", "taskRoles"],
    "properties": {"protocolVersion": {"enum": [2, "2"]}},
}
JOB: Schema = {"anyOf": [NATIVE, OPENPAI]}
JOBS: Schema = {"anyOf": [NATIVE, OPENPAI, {"type": "array", "minItems": 1, "items": JOB}]}
BATCH = closed({"jobs": {"type": "array", "minItems": 1, "items": JOB}}, "jobs")
