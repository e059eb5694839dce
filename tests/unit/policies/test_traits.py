"""Orders and placements declare what they are by traits, which are checked against the methods of their classes."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

import skep.policies
from skep.core.view import JobView
from skep.policies.order.base import TRAITS, Order
from skep.policies.order.queues import Queues
from skep.policies.order.shares import ByUse
from skep.policies.order.simple import Fifo
from skep.policies.place.base import Place
from skep.policies.place.gated import Relaxed
from skep.policies.place.simple import Consolidate

PACKAGE = Path(skep.policies.__file__).parent


class Patient(Fifo):
    jumps = True

    def changes_at(self, job: JobView, now_s: float) -> float:
        return math.inf


@pytest.mark.parametrize(
    ("order", "traits"),
    [
        (Order, set()),
        (Fifo, set()),
        (Patient, {"jumps"}),
        (Queues, {"hears_starts", "hears_stops", "hears_ends", "settles", "jumps"}),
        (ByUse, {"hears_starts", "hears_stops"}),
    ],
)
def test_an_order_has_the_traits_that_it_declares(order: type[Order], traits: set[str]) -> None:
    assert {trait for trait in TRAITS.values() if getattr(order, trait)} == traits


def test_a_placement_has_the_traits_that_it_declares() -> None:
    assert (Place.has_keys, Consolidate.has_keys, Relaxed.has_keys) == (False, False, True)
    assert (Consolidate.jumps, Relaxed.jumps) == (False, True)


@pytest.mark.parametrize(("method", "trait"), TRAITS.items())
def test_a_trait_of_an_order_must_be_declared_if_it_has_the_method_and_only_then(method: str, trait: str) -> None:
    with pytest.raises(TypeError, match=f"Mine has the method {method}: declare `{trait} = True`"):
        type("Mine", (Fifo,), {method: lambda self, *given: None})
    with pytest.raises(TypeError, match=f"Mine lacks the method {method}: declare `{trait} = False`"):
        type("Mine", (Fifo,), {trait: True})


@pytest.mark.parametrize(("method", "trait"), [("key", "has_keys"), ("changes_at", "jumps")])
def test_so_must_a_trait_of_a_placement(method: str, trait: str) -> None:
    with pytest.raises(TypeError, match=f"Mine has the method {method}: declare `{trait} = True`"):
        type("Mine", (Consolidate,), {method: lambda self, job, now_s: 0})
    with pytest.raises(TypeError, match=f"Mine lacks the method {method}: declare `{trait} = False`"):
        type("Mine", (Consolidate,), {trait: True})


def test_nobody_else_asks_which_methods_a_part_has() -> None:
    """`x.method is not Base.method` stands only where a user's class is checked for the one method that it must have;
    `check_traits` compares by name."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
        if all(isinstance(side, ast.Attribute) for side in (node.left, node.comparators[0]))
        if isinstance(owner := node.comparators[0].value, ast.Name) and owner.id in ("Order", "Place", "Pipeline")  # type: ignore[attr-defined]
    }
    assert found <= {"own.py"}
