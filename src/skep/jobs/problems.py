"""All errors in a job file, not only the first, for forms and editors."""

from __future__ import annotations

import re

from skep.core.errors import InputError
from skep.files.document import Raw, read_document
from skep.jobs.read import Reading, read_field, refuse_no_text

PROBLEMS_MAX = 20
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def read_all(text: str, source: str, user: str) -> tuple[Reading | None, list[InputError]]:
    """The jobs, or the errors in the order in which they are found: each faulty value is removed to find the next
    error."""
    faults: list[InputError] = []
    try:
        refuse_no_text(text, source)
        document = read_document(text, source)
    except InputError as fault:
        return None, [fault]
    while len(faults) < PROBLEMS_MAX:
        try:
            reading = read_field(document, user)
            return (None if faults else reading), faults
        except InputError as fault:
            if faults and not fault.path:
                break  # the removed value is missing now
            faults.append(fault)
            if not (fault.path and drop(document.raw, fault.path)):
                break
    return None, faults


def drop(raw: Raw, path: str) -> bool:
    """Remove the value at this path. True if it existed."""
    steps = [match.groups() for match in _STEP.finditer(path)]
    for number, (index, key) in enumerate(steps):
        is_last = number == len(steps) - 1
        if not isinstance(raw.content, list):
            return False
        if index is not None:
            at, width = int(index), 1
        else:
            places = [at for at in range(0, len(raw.content), 2) if raw.is_map and raw.content[at].content == key]
            if not places:
                return False
            at, width = places[0] + 1, 2
        if at >= len(raw.content):
            return False
        if is_last:
            del raw.content[at + 1 - width : at + 1]
            return True
        raw = raw.content[at]
    return False
