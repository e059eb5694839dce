"""Tags and extras: what nodes have and roles need."""

from __future__ import annotations

import pytest

from skep.core.allocation import Allocation, Slice
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import InvariantBroken
from skep.core.tags import check_expression, compiled, has_tags

HAS = frozenset({"zone=a", "cores=16", "ssd", "~batch=only"})


@pytest.mark.parametrize(
    ("expression", "is_there"),
    [
        ("zone=a", True),
        ("zone=b", False),
        ("zone=b|a", True),
        ("zone!=a|b", False),
        ("zone!=c", True),
        ("rack!=c", True),
        ("ssd", True),
        ("zone", True),
        ("rack", False),
        ("!rack", True),
        ("!zone", False),
        ("cores>15", True),
        ("cores>16", False),
        ("cores<17", True),
        ("rack>1", False),
        ("zone>1", False),
        ("zone=b or ssd", True),
        ("zone=b & ssd", False),
        ("zone=b & ssd or zone=a & cores>3", True),
        ("~", False),
        ("~batch", True),
        ("~batch=only", True),
        ("~batch=other|x", False),
    ],
)
def test_an_expression(expression: str, is_there: bool) -> None:
    assert check_expression(expression)
    assert has_tags(HAS, (expression,)) == is_there
    assert compiled(expression) is compiled(expression), "each is compiled once"


@pytest.mark.parametrize("text", ["", " ", "=a", "a=", "!a=b", "a>b", "a=b c", "a or ", "a<>1", "~a b", "a~b"])
def test_what_is_no_expression(text: str) -> None:
    assert not check_expression(text)


def test_extras_are_booked_and_returned_exactly() -> None:
    cluster = Cluster([NodeSpec("n", 2, extras=(("pods", 2), ("rdma", 1)))])
    node = cluster.nodes[0]
    both = Allocation((Slice(0, 1, extras=(("pods", 1), ("rdma", 1))),), 1)
    cluster.take(both, 1)
    assert node.extras_free == {"pods": 1, "rdma": 0}
    for extras in ((("rdma", 1),), (("pods", 1), ("rdma", 1)), (("none", 1),)):
        with pytest.raises(InvariantBroken, match="over capacity"):
            cluster.take(Allocation((Slice(0, 2, extras=extras),), 1), 2)
        assert node.extras_free == {"pods": 1, "rdma": 0}
        assert node.free_mask == 2
    cluster.give(both, 1)
    assert node.extras_free == {"pods": 2, "rdma": 1}
