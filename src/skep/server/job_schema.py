"""The schema of a job for `/openapi.json`, made from the table of fields by which job files are read."""

from __future__ import annotations

from skep.jobs.table import BESIDE_NAME, JOB, closed
from skep.service.values import Json

NATIVE = closed(BESIDE_NAME | JOB, "name")
OPENPAI: Json = {
    "type": "object",
    "description": "OpenPAI's job protocol, version 2.",
    "required": ["protocolVersion", "name", "taskRoles"],
    "properties": {"protocolVersion": {"enum": [2, "2"]}},
}
ANY_JOB: Json = {"anyOf": [NATIVE, OPENPAI]}
JOBS: Json = {"anyOf": [NATIVE, OPENPAI, {"type": "array", "minItems": 1, "items": ANY_JOB}]}
BATCH: Json = {
    "type": "object",
    "properties": {"jobs": {"type": "array", "minItems": 1, "items": ANY_JOB}},
    "additionalProperties": False,
    "required": ["jobs"],
}
