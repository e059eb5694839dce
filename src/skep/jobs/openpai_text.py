"""The text of an OpenPAI job: templates with `<% $parameters.x %>`, and secrets, which are not inserted."""

from __future__ import annotations

import re

from skep.files.document import Field
from skep.jobs import fields
from skep.jobs.sweep import substitute

SECRET = "SKEP_SECRET_"
"""The prefix of a secret's variable; a command gets a reference to it instead of the value."""

_TAG = re.compile(r"<%\s{0,20}\$([A-Za-z]{1,20})((?:\.[A-Za-z0-9_-]{1,200}|\[[0-9]{1,6}\]){0,20})\s{0,20}%>")
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


class TextContext:
    """What the tags of a role can name: the job's parameters and secrets, and the prerequisites of the role."""

    def __init__(self, given: dict[str, Field], secrets: dict[str, str]) -> None:
        self.given = given
        self.secrets = secrets

    def render(self, field: Field) -> str:
        """Tags without a value are left unchanged."""
        text = fields.content(field)
        return substitute(text, _TAG, self._value, field) if "<%" in text else text

    def _value(self, match: re.Match[str]) -> str | None:
        if match[1] == "secrets":
            variable = SECRET + _flat(match[2])
            return f"${{{variable}}}" if variable in self.secrets else None
        field = self.given.get(match[1])
        for step in _STEP.finditer(match[2]):
            field = _below(field, step) if field is not None else None
        if field is None or not isinstance(field.raw.content, str):
            return None
        return field.raw.content


def _below(field: Field, step: re.Match[str]) -> Field | None:
    if step[1] is not None:
        return field.fields().get(step[1]) if field.is_mapping else None
    items = field.items() if field.is_list else []
    return items[int(step[2])] if int(step[2]) < len(items) else None


def _flat(path: str) -> str:
    """`.a[0].b` as part of the name of a variable: `a_0_b`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_")


def read_secrets(field: Field | None) -> dict[str, str]:
    """All text below `secrets`, at any depth, by the name of its variable."""
    found: dict[str, str] = {}
    if field is not None and not field.is_null:
        field.fields()
        _collect(field, "", found)
    return found


def _collect(field: Field, path: str, found: dict[str, str]) -> None:
    if field.is_mapping:
        for key, entry in fields.mapping(field).items():
            _collect(entry, f"{path}.{key}", found)
    elif field.is_list:
        for at, entry in enumerate(fields.entries(field)):
            _collect(entry, f"{path}[{at}]", found)
    elif not field.is_null:
        found[SECRET + _flat(path)] = fields.content(field)
    if len(found) > fields.LIST_MAX:
        raise field.trouble(f"secrets has more than {fields.LIST_MAX:,} values")
