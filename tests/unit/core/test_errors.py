"""Errors carry what a message needs."""

from __future__ import annotations

import pytest

from skep.core.errors import Conflict, InputError, InvariantBroken, NotFound, SkepError, did_you_mean


def test_the_tree_of_exceptions() -> None:
    assert issubclass(NotFound, InputError)
    assert issubclass(Conflict, InputError)
    assert issubclass(InputError, SkepError)
    assert issubclass(InvariantBroken, SkepError)
    assert not issubclass(InvariantBroken, InputError)


def test_an_error_knows_its_place_in_a_file() -> None:
    error = InputError("f:3: gpus is x", hint="a number").at("tasks.w.gpus", 3, "gpus is x")
    assert (str(error), error.hint, error.path, error.line, error.problem) == (
        "f:3: gpus is x",
        "a number",
        "tasks.w.gpus",
        3,
        "gpus is x",
    )


@pytest.mark.parametrize(
    ("word", "most", "expected"),
    [("gpu", 1, "; did you mean gpus?"), ("cpos", 2, "; did you mean cpus or gpus?"), ("xyz", 1, "")],
)
def test_near_words_are_offered(word: str, most: int, expected: str) -> None:
    assert did_you_mean(word, ["gpus", "cpus", "memory"], most=most, start="; ") == expected
