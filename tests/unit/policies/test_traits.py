"""What orders and placements are is said by traits, which follow from the methods that their classes have."""

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
    def changes_at(self, job: JobView, now_s: float) -> float:
        return math.inf


@pytest.mark.parametrize(
    ("order", "traits"),
    [
        (Order, set()),
        (Fifo, set()),
        (Patient, {"jumps"}),
        (Queues, {"settles", "jumps"}),
        (ByUse, {"hears_starts", "hears_stops"}),
    ],
)
def test_the_traits_of_an_order_follow_from_its_methods(order: type[Order], traits: set[str]) -> None:
    found = {trait for trait in TRAITS.values() if getattr(order, trait)}
    assert traits <= found
    assert found == {trait for method, trait in TRAITS.items() if getattr(order, method) is not getattr(Order, method)}


def test_the_traits_of_a_placement_follow_from_its_methods() -> None:
    assert (Place.has_keys, Consolidate.has_keys, Relaxed.has_keys) == (False, False, True)
    assert (Consolidate.jumps, Relaxed.jumps) == (False, True)


def test_nobody_else_asks_which_methods_a_part_has() -> None:
    """`x.method is not Base.method` stands in the two classes that set the traits, and where a user's class is checked
    for the one method that it must have."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
        if all(isinstance(side, ast.Attribute) for side in (node.left, node.comparators[0]))
        if isinstance(owner := node.comparators[0].value, ast.Name) and owner.id in ("Order", "Place", "Pipeline")  # type: ignore[attr-defined]
    }
    assert found <= {"place/base.py", "own.py"}
