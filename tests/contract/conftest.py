"""Tests of this folder run once for every engine that offers what they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from subjects import SUBJECTS, Kube, Subject


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """`needs(…)` names capabilities without which a test makes no sense."""
    kind = SUBJECTS[request.param]
    made = kind(tmp_path, request.getfixturevalue("plane")) if issubclass(kind, Kube) else kind(tmp_path)
    try:
        needed = {each for mark in request.node.iter_markers("needs") for each in mark.args}
        if missing := needed - made.engine.capabilities:
            pytest.skip(f"the {request.param} does not offer {', '.join(sorted(missing))}")
        made.adopt()
        yield made
    finally:
        made.close()
