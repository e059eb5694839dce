"""Values that both kinds of job files have: names, durations, commands, environments, and their limits.

The limits are far above real needs. They limit what a hostile job file can cost.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re

from skep.core.errors import InputError
from skep.core.model import PRIORITIES
from skep.core.tags import check_expression
from skep.files.document import DEPTH_MAX, Field, Raw
from skep.jobs.request import Request

TASKS_MAX = 10_000
"""The most tasks of a job."""
ROLES_MAX = 100
GPUS_MAX = 1024
"""The most GPUs of a task."""
PORTS_MAX = 100
"""The most ports of one label of a task."""
EXTRAS_MAX = 10**12
"""The most of a countable resource."""
PARAMETERS_MAX = 20
PARAMETER_MAX = 1000
"""The most parameters of a sweep, and the most characters of a value."""
SECONDS_MAX = 1e9
RETRIES_MAX = 1_000_000
NUMBER_MAX = 100
"""The most characters of a number."""
TEXT_MAX = 131_071
"""The most bytes of a command: Linux passes no longer argument to a process."""
LIST_MAX = 1000
"""The most arguments, variables, tags, …"""
VALUES_MAX = 50_000
"""The most values of a job."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
"""OpenPAI's names, except those that commands would take for an option."""
ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
"""Roles and port labels become parts of the names of variables."""
EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,252}")
"""Countable resources, as Kubernetes names them."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?)\s?(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OURS = re.compile(
    r"SKEP_(?!SECRET_).*|PAI_.*|(LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES"
)


def raw_of(value: object, where: str, *, depth: int = DEPTH_MAX) -> Raw:
    """Values that came as JSON, in the form of the file readers: words spelled as in the text, nothing too deep."""
    if isinstance(value, str):
        return Raw(value, 0)
    if not isinstance(value, dict | list | tuple):
        return Raw(_word(value, where), 0, is_plain=True)
    if not depth:
        raise InputError(f"{where}: is nested more than {DEPTH_MAX} deep")
    is_map = isinstance(value, dict)
    parts = itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value
    raw = Raw([raw_of(part, where, depth=depth - 1) for part in parts], 0, is_map=is_map)
    for part in raw.content:
        raw.size += part.size
    return raw


def _word(value: object, where: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 1024:
        raise InputError(f"{where}: has a number that is too large")
    if isinstance(value, int | float):
        return str(value)
    raise InputError(f"{where}: has a value of type {type(value).__name__}, expected what JSON can say")


def length(raw: Raw) -> int:
    """The number of characters, plus a few for every value; aliases are expanded."""
    return 10 + (len(raw.content) if isinstance(raw.content, str) else sum(length(part) for part in raw.content))


def has_key(field: Field, key: str) -> bool:
    """Only the keys that are present are examined, since most jobs have few of the possible keys."""
    return field.is_mapping and any(raw.content == key for raw in field.raw.content[::2])


def word(field: Field, pattern: re.Pattern[str], expected: str) -> str:
    found = field.text(expected)
    if pattern.fullmatch(found) is None:
        raise field.fault(expected)
    return found


def name(field: Field) -> str:
    return word(field, NAME, "a name: up to 255 letters, digits, dots, dashes and underscores, no dot or dash first")


def role_name(field: Field, role: str) -> str:
    if ROLE.fullmatch(role) is None:
        raise field.trouble(
            f"{field.path[:200]!r}: expected the name of a role: letters, digits and underscores, up to 63"
        )
    return role


def label(field: Field, *, most: int = 128) -> str:
    """A text that others choose or that must exist elsewhere: any script, but one short line."""
    found = field.text()
    if len(found) > most:
        raise field.fault(f"at most {most} characters")
    return found


def content(field: Field, *, may_be_empty: bool = True) -> str:
    """Text that goes to a process unchanged, line ends included."""
    text = field.raw.content
    if not isinstance(text, str) or field.is_null or not (text.strip() or may_be_empty):
        raise field.fault("text")
    if "\0" in text:
        raise field.trouble(f"{field.path} has a zero byte")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise field.trouble(f"{field.path} has a lone surrogate") from None
    if size > TEXT_MAX:
        raise field.trouble(f"{field.path} has {size:,} bytes, expected at most {TEXT_MAX:,}")
    return text


def command(field: Field) -> str:
    if field.is_list:
        raise field.fault("text", hint="a list of arguments goes into argv")
    return content(field, may_be_empty=False)


def entries(field: Field, *, most: int = LIST_MAX) -> list[Field]:
    """The items of a list; one value counts as a list of one."""
    found = [] if field.is_null else field.items() if field.is_list else [field]
    if len(found) > most:
        raise field.trouble(f"{field.path} has {len(found):,} entries, expected at most {most:,}")
    return found


def mapping(field: Field, *, most: int = LIST_MAX) -> dict[str, Field]:
    found = {} if field.is_null else field.fields()
    if len(found) > most:
        raise field.trouble(f"{field.path} has {len(found):,} entries, expected at most {most:,}")
    return found


def environment(field: Field) -> dict[str, str]:
    return {_variable(key, value): content(value) for key, value in mapping(field).items()}


def _variable(key: str, value: Field) -> str:
    if VARIABLE.fullmatch(key) is None:
        raise value.trouble(f"{value.path[:200]!r}: expected the name of a variable: letters, digits and underscores")
    if _OURS.fullmatch(key):
        raise value.trouble(f"{value.path}: Skep sets this variable itself", hint="use another name")
    return key


def parameters(field: Field) -> dict[str, str]:
    found = {}
    for key, value in mapping(field, most=PARAMETERS_MAX).items():
        if VARIABLE.fullmatch(key) is None:
            raise value.trouble(f"{value.path[:200]!r}: expected a name of letters, digits and underscores")
        found[key] = label(value, most=PARAMETER_MAX)
    return found


def ports(field: Field) -> dict[str, int]:
    found = {}
    for key, value in mapping(field, most=PORTS_MAX).items():
        if ROLE.fullmatch(key) is None:
            raise value.trouble(f"{value.path[:200]!r}: expected a label of letters, digits and underscores")
        found[key] = whole(value, 1, PORTS_MAX)
    return found


def node_tags(field: Field) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(label(item, most=1000) for item in entries(field)))
    for text in found:
        if not check_expression(text):
            raise field.trouble(
                f"{field.path}: {text[:80]!r} is not an expression", hint="for example zone=a|b, zone!=a, ssd or !ssd"
            )
    return found


def extras(field: Field) -> dict[str, int]:
    found = {}
    for name, value in mapping(field).items():
        if EXTRA.fullmatch(name) is None:
            raise value.trouble(f"{field.path}: {name[:80]!r} is not the name of a resource")
        found[name] = whole(value, 1, EXTRAS_MAX)
    return found


def whole(field: Field, least: int, most: int) -> int:
    _refuse_long(field, f"a whole number from {least} to {most:,}")
    return field.whole(least=least, most=most)


def gpus(field: Field) -> int:
    """Whole numbers; the error for a fraction says how to request a part of a GPU."""
    try:
        return whole(field, 0, GPUS_MAX)
    except InputError as fault:
        with contextlib.suppress(InputError):
            part = field.number(most=1)
            fault.hint = f"a part of a GPU: gpus: 1 with gpu_milli: {max(round(part * 1000), 1)}" if part else ""
        raise


def number(field: Field, most: float) -> float:
    _refuse_long(field, f"a number from 0 to {most:g}")
    return field.number(most=most)


def _refuse_long(field: Field, expected: str) -> None:
    """Matching a million digits with the pattern of a number takes hours, and no valid number has many."""
    if len(field.raw.content) > NUMBER_MAX:
        raise field.fault(expected)


def duration(field: Field, *, most: float = SECONDS_MAX) -> float:
    """Seconds: a number, or `90s`, `10m`, `2h`, `1d`."""
    text = field.raw.content
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    seconds = float(match[1]) * _SECONDS[match[2]] if match else _seconds(field)
    if not 0 <= seconds <= most:
        raise field.fault(f"a duration up to {most:g} seconds, such as 90, 90s, 10m or 2h")
    return seconds


def _seconds(field: Field) -> float:
    try:
        return number(field, SECONDS_MAX)
    except InputError:
        return math.nan


def priority(field: Field) -> int:
    text = field.raw.content
    if isinstance(text, str) and text in PRIORITIES:
        return PRIORITIES[text]
    try:
        return whole(field, -1, 1000)
    except InputError:
        raise field.fault(f"a whole number from -1 to 1000, or {', '.join(PRIORITIES)}") from None


def gpu_type(field: Field) -> str:
    """In lower case as everywhere in Skep, each of several once."""
    types = dict.fromkeys(name for part in label(field).lower().split("|") if (name := part.strip()))
    if not types:
        raise field.fault("a GPU type, or several as in v100|a100")
    return "|".join(types)


def pinned(field: Field) -> str:
    """The name of a pinned cell: that of a node, or an address."""
    return label(field, most=1000)


def checked(request: Request, tasks: Field) -> Request:
    """Checks of a job as a whole, for every format."""
    count = sum(role.count for role in request.tasks.values())
    if count > TASKS_MAX:
        raise tasks.trouble(f"{tasks.path} has {count:,} tasks, expected at most {TASKS_MAX:,}")
    if request.gang and len(request.tasks) > 1:
        types = sorted({role.gpu_type for role in request.tasks.values() if role.gpu_type})
        if len(types) > 1:
            hint = "name one type for all, or set gang to false"
            raise tasks.trouble(f"{tasks.path}: a gang is on one GPU type, not on {' and '.join(types)}", hint=hint)
    if request.pinned and request.priority < 0:
        hint = "leave out one of them"
        raise tasks.trouble(
            f"opportunistic work (priority oppo) cannot ask for pinned cell {request.pinned}", hint=hint
        )
    if request.pinned and not request.gpus:
        raise tasks.trouble(f"pinned cell {request.pinned} is requested without GPUs", hint="gpus says how many of it")
    return request
