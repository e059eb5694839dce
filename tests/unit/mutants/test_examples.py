"""The examples that Hypothesis draws in these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[int]:
    found = []

    @settings(max_examples=200)
    @given(st.integers(0, 10**9))
    def note(value: int) -> None:
        found.append(value)

    note()
    return found


def test_modules_that_are_loaded_do_not_change_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not settings.default.derandomize:
        pytest.skip("this profile draws new examples in every run")
    before = drawn()
    (tmp_path / "many_constants.py").write_text(f"CONSTANTS = {[number * 7919 for number in range(1000, 1200)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("many_constants")
    assert drawn() == before
