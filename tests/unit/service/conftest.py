"""For tests of the service and of what beside it decides on copies of its state."""

from __future__ import annotations

import pytest

from skep.experiments import adviser, planned


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are tried out however long it takes: a fork of a process as large as that of these tests is slow."""
    for module in (adviser, planned):
        monkeypatch.setattr(module, "NOW_CPU_S", 60.0)
