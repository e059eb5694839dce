"""A job as the file that submits it again."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.jobs.read import ONE_ROLE
from skep.jobs.request import MASK, Request, masked

TEXT = "tag:yaml.org,2002:str"
ODD_BREAKS = frozenset("\x85\u2028\u2029")
"""Unicode line ends, which PyYAML would write unescaped and read as spaces."""


def job_text(request: Request, *, hide_values: bool = False) -> tuple[str, list[str]]:
    """YAML, and the names of variables whose values are hidden: secrets, and with `hide_values` all of them."""
    values = as_file(masked(request))
    hidden = list(values.get("secrets", ()))
    for role in values["tasks"].values():
        if hide_values and role.get("env"):
            hidden += role["env"]
            role["env"] = dict.fromkeys(role["env"], MASK)
    return as_yaml(flat(values)), list(dict.fromkeys(hidden))


def as_file(request: Request) -> dict[str, Any]:
    """With the keys of a job file."""
    values: dict[str, Any] = msgspec.to_builtins(request)
    if more := values.pop("of_group", None):
        values["group"] = {"name": values["group"], **more}
    return values


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of the only role beside the name, as people write it."""
    roles = values["tasks"]
    first = {key: value for key, value in values.items() if key in ("name", "user", "vc", "pinned")}
    rest = {key: value for key, value in values.items() if key not in (*first, "tasks")}
    if list(roles) == [ONE_ROLE] and "retries" not in roles[ONE_ROLE]:
        return {**first, **roles[ONE_ROLE], **rest}
    return {**first, **rest, "tasks": roles}


def as_yaml(values: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Text of several lines as a block."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        if ODD_BREAKS.intersection(value):
            return dumper.represent_scalar(TEXT, value, style='"')
        return dumper.represent_scalar(TEXT, value, style="|" if "\n" in value.rstrip("\n") else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6))
