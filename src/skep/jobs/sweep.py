"""One file, many jobs: `sweep` has lists of values, and every combination of them is a job of one group."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from skep.core.errors import did_you_mean
from skep.files.document import Field, Raw
from skep.jobs import fields

JOBS_MAX = 10_000
LENGTH_MAX = 64_000_000
"""The most characters of all jobs of a sweep together."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"(?:^|[\s;&|(])([A-Za-z_]\w*)(?:\+?=| +in\b)|\bread +(?:-\w+ +)*([\w ]+)")


def substitute(
    text: str, pattern: re.Pattern[str], value_of: Callable[[re.Match[str]], str | None], field: Field
) -> str:
    """The text with every match replaced; a match without a value stays. It cannot become longer than the limit."""
    parts, at, size = [], 0, 0
    for match in pattern.finditer(text):
        value = value_of(match)
        if value is not None:
            parts += [text[at : match.start()], value]
            at = match.end()
            size += len(value)
        if size > fields.TEXT_MAX:
            raise field.trouble(f"{field.path} becomes longer than {fields.TEXT_MAX:,} characters")
    return "".join([*parts, text[at:]])


def swept(document: Field) -> Iterator[Field]:
    """The jobs of a document with a sweep: one for each combination."""
    given = document.fields()
    if "parameters" in given:
        raise given["parameters"].trouble("parameters and sweep are both given", hint="a sweep sets the parameters")
    choices = _choices(given["sweep"])
    jobs = math.prod(len(values) for values in choices.values())
    refuse_too_many(given["sweep"], jobs, document)
    refuse_unknown(document, choices)
    for number, values in enumerate(itertools.product(*choices.values()), start=1):
        yield combination(document, dict(zip(choices, values, strict=True)), number)


def refuse_too_many(sweep: Field, jobs: int, document: Field, most: int = JOBS_MAX) -> None:
    if jobs > most:
        raise sweep.trouble(f"{sweep.path} makes {jobs:,} jobs, expected at most {most:,}")
    if jobs * fields.length(document.raw) > LENGTH_MAX:
        raise sweep.trouble(f"{sweep.path} makes {jobs:,} jobs of this size", hint="put the long text into a script")


def refuse_unknown(document: Field, choices: Collection[str], what: str = "sweep") -> None:
    """`${lrr}` would be an empty text in the shell, which has only what the job sets itself and names in capitals."""
    texts = [text for key, part in document.fields().items() if key not in ("sweep", "search") for text in _texts(part)]
    own = {name for field in texts for name in _assigned(field.raw.content)} | _environment(document)
    for field in texts:
        for match in _VARIABLE.finditer(field.raw.content):
            name = match[1]
            is_shells = name in own or (name.isupper() and name.lower() not in choices)
            if name not in choices and not is_shells:
                near = did_you_mean(name.lower(), choices, start=", ")
                problem = f"{field.path}: ${{{name[:100]}}} is not a parameter of the {what}{near}"
                hint = f"it has {', '.join(list(choices)[:20])}; a variable of the shell is written ${name[:100]}"
                raise field.trouble(problem, hint=hint)


def _texts(field: Field) -> Iterator[Field]:
    if isinstance(field.raw.content, str):
        yield field
    elif field.is_mapping:
        for part in field.fields().values():
            yield from _texts(part)
    else:
        for part in field.items():
            yield from _texts(part)


def _assigned(command: str) -> Iterator[str]:
    """Variables that a command sets: `x=1`, `for x in`, `read x y`."""
    for match in _ASSIGNMENT.finditer(command):
        yield from (match[1] or match[2] or "").split()


def _environment(document: Field) -> set[str]:
    """Variables that the file sets, for the job or for one of its roles."""
    given = document.fields()
    roles = given["tasks"].fields().values() if "tasks" in given and given["tasks"].is_mapping else ()
    places = [document, *(role for role in roles if role.is_mapping)]
    sets = (place.fields().get(key) for place in places for key in ("env", "secrets"))
    return {name for each in sets if each is not None and each.is_mapping for name in each.fields()}


def _choices(field: Field) -> dict[str, list[str]]:
    found = {}
    for key, values in fields.mapping(field, most=fields.PARAMETERS_MAX).items():
        if fields.VARIABLE.fullmatch(key) is None:
            raise values.trouble(f"{values.path[:200]!r}: expected a name of letters, digits and underscores")
        found[key] = [fields.label(value, most=fields.PARAMETER_MAX) for value in values.items()]
        if not found[key]:
            raise values.fault("a list of values")
    if not found:
        raise field.fault("at least one list of values, such as lr: [0.1, 0.01]")
    return found


def combination(document: Field, values: Mapping[str, str], number: int, search: Raw | None = None) -> Field:
    """The document with the values inserted. A name without any of them gets a number, and a group name is
    generated; `search` is the rule of its group."""
    entries: list[Raw] = []
    name = _name_of(document)
    has_value = any(match[1] in values for match in _VARIABLE.finditer(name))
    for key, raw in zip(document.raw.content[::2], document.raw.content[1::2], strict=True):
        if key.content in ("sweep", "search", "group"):
            continue
        filled = _filled(raw, values, document)
        if key.content == "name" and not has_value:
            filled = Raw(f"{name}-{number}", raw.line)
        entries += [key, filled]
    line = document.raw.line
    entries += [Raw("group", line), _filled(_group(document, name, number, search), values, document)]
    chosen = [Raw(text, line) for pair in values.items() for text in pair]
    entries += [Raw("parameters", line), Raw(chosen, line, is_map=True)]
    return Field(document.file, document.path, Raw(entries, document.raw.line, is_map=True))


def _group(document: Field, name: str, number: int, search: Raw | None) -> Raw:
    """The given group, or one derived from the name; the jobs are numbered in it."""
    line = document.raw.line
    given = document.fields().get("group")
    asked = given.raw if given is not None and not given.is_null else Raw(_stem(name), line)
    entries = asked.content if asked.is_map else [Raw("name", line), asked]
    for key, value in (("kind", "sweep"), ("index", str(number - 1))):
        if all(part.content != key for part in entries[::2]):
            entries = [*entries, Raw(key, line), Raw(value, line, is_plain=True)]
    if search is not None:
        entries = [*entries, Raw("search", line), search]
    return Raw(list(entries), line, is_map=True)


def _name_of(document: Field) -> str:
    field = document.fields().get("name")
    return field.text() if field is not None else ""


def _stem(name: str) -> str:
    return _VARIABLE.sub("", name).strip("-._") or "sweep"


def _filled(raw: Raw, values: Mapping[str, str], document: Field) -> Raw:
    if isinstance(raw.content, str):
        if "${" not in raw.content:
            return raw
        field = Field(document.file, "the text", raw)
        text = substitute(raw.content, _VARIABLE, lambda match: values.get(match[1]), field)
        return Raw(text, raw.line, is_plain=raw.is_plain)
    parts = raw.content
    if raw.is_map:
        content = [part if at % 2 == 0 else _filled(part, values, document) for at, part in enumerate(parts)]
    else:
        content = [_filled(part, values, document) for part in parts]
    return Raw(content, raw.line, is_map=raw.is_map)
