"""One table of fields: what the schema of the API promises is what the reader takes, and the structs have it all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.core.errors import InputError
from skep.jobs import table
from skep.jobs.read import from_mapping
from skep.server.job_schema import NATIVE

FLAT = [(name, field) for name, field in (table.BESIDE_NAME | table.JOB).items() if "minimum" in field.kind.schema]
NO_DEFAULT = {"name", "command", "tasks", "sweep", "gpus"}
INSIDE = {"of_group"}
"""Made of another field: `group` has a name, and what holds for the group."""


def read(**values: Any) -> Any:
    return from_mapping({"name": "a", "command": "true", "gpus": 1, **values}).requests[0]


@pytest.mark.parametrize(("name", "field"), FLAT, ids=[name for name, _ in FLAT])
def test_ranges_of_the_schema_are_those_of_the_reader(name: str, field: table.JobField) -> None:
    schema = field.kind.schema
    for end, beyond in (("minimum", -1), ("maximum", 1)):
        read(**{name: schema[end]})
        with pytest.raises(InputError, match=f"{name} is {schema[end] + beyond}, expected"):
            read(**{name: schema[end] + beyond})


@pytest.mark.parametrize(("fields", "struct"), table.STRUCTS, ids=[struct.__name__ for _, struct in table.STRUCTS])
def test_every_value_of_a_job_has_a_field(fields: table.Table, struct: type[msgspec.Struct]) -> None:
    names = {field.name for field in msgspec.structs.fields(struct)} - INSIDE
    assert names <= set(fields)
    assert all(field.help and field.kind.words for field in fields.values())


@pytest.mark.parametrize("name", sorted({*table.BESIDE_NAME, *table.JOB} - NO_DEFAULT))
def test_null_stands_for_the_default(name: str) -> None:
    assert read(**{name: None}) == read()


@pytest.mark.parametrize("name", ["kind", "role", "index", "weight", "ends_when"])
def test_null_stands_for_the_default_in_a_group(name: str) -> None:
    assert read(group={"name": "g", name: None}) == read(group="g")


def test_the_schema_has_every_field_with_its_help() -> None:
    shown = NATIVE["properties"]
    assert set(shown) == set(table.BESIDE_NAME) | set(table.JOB)
    assert shown["grace_s"]["anyOf"][0]["maximum"] == table.GRACE_MAX
    assert shown["gpu_milli"]["description"] == table.ROLE["gpu_milli"].help
