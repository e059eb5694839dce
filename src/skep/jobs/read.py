"""Reads what a user submits: Skep's own job file or OpenPAI's, one job or many, as YAML, JSON or values.

There is one set of rules, in `native.py` and `openpai.py`, on values that may have a line number. JSON is first read
quickly and without line numbers; only if it has an error it is read again as a document, to name the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

from skep.core.errors import InputError
from skep.files.document import Field, read_document
from skep.jobs import fields
from skep.jobs.native import read_native
from skep.jobs.openpai import is_openpai, read_openpai
from skep.jobs.request import Request
from skep.jobs.scripts import refuse_script
from skep.jobs.sweep import JOBS_MAX, swept

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
    if is_openpai(job):
        return [read_openpai(job, user, warnings)]
    return [read_native(one, user, warnings) for one in swept(job)]
