"""Fields and knowledge that only planners which declare them can read."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from skep.core.knowledge import READ_WITH, Knowledge, ShownKnowledge
from skep.core.model import (
    GUARDED,
    INFORMS,
    Declares,
    JobSpec,
    Need,
    NeedNotDeclared,
    deadline_of,
    gpu_shape,
    shown_to,
    told,
)


def test_every_combination_of_needs_shows_what_it_declares() -> None:
    spec = JobSpec("a", (gpu_shape(1),), expect_s=1.0, deadline_s=2.0, steps=3, epochs=4)
    for count in range(4):
        for needs in map(frozenset, itertools.combinations(sorted(set(GUARDED.values())), count)):
            shown = shown_to(needs, spec)
            for name, need in GUARDED.items():
                if need in needs:
                    assert getattr(shown, name) == getattr(told(spec), name)
                else:
                    with pytest.raises(NeedNotDeclared, match=name):
                        getattr(shown, name)
            assert msgspec.structs.astuple(shown) == msgspec.structs.astuple(spec)
            assert shown_to(frozenset(), shown) == spec


def test_knowledge_shows_what_is_declared_and_the_requests_always() -> None:
    shown = ShownKnowledge(Knowledge(), frozenset())
    assert list(shown.requests.shapes()) == []
    with pytest.raises(AttributeError, match="knows no note_end"):
        _ = shown.note_end


def test_others_than_planners_read_all() -> None:
    spec = JobSpec("a", (gpu_shape(1),), deadline_s=2.0, steps=3)
    assert (told(spec).steps, told(spec).deadline_s, deadline_of(spec)) == (3, 2.0, 2.0)


def test_every_figure_has_a_need_that_informs() -> None:
    assert {*GUARDED.values(), *READ_WITH.values()} == INFORMS


def test_a_planner_that_says_nothing_declares_nothing() -> None:
    assert Declares().needs_in("any") == frozenset()
    said = str(NeedNotDeclared("`x`", Need.ORACLE))
    assert said.startswith("the policy reads `x` and does not declare that it needs `oracle`")
    assert said.endswith('declare it with `needs = {"oracle"}` in its class')
