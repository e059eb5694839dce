"""The reference of job files says what the reader does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.jobs import openpai_extras
from skep.jobs.read import OF_ANY, read_requests

PAGE = (Path(__file__).parents[3] / "docs/reference/jobs.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("text", "jobs"), list(zip(EXAMPLES, [1, 1, 6, 27, 1, 1, 1], strict=True)))
def test_examples_are_jobs(text: str, jobs: int) -> None:
    reading = read_requests(text)
    assert len(reading.requests) == jobs
    assert reading.warnings == []


@pytest.mark.parametrize("field", [*OF_ANY, *openpai_extras.OF_SKU])
def test_every_field_is_named(field: str) -> None:
    assert f"`{field}`" in PAGE or f".{field}`" in PAGE
