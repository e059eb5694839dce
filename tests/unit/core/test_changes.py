"""Which nodes changed since a reader last looked."""

from __future__ import annotations

from skep.core.allocation import Slice
from skep.core.changes import Changes


def slices(*nodes: int) -> tuple[Slice, ...]:
    return tuple(Slice(node, 0b1) for node in nodes)


def test_nodes_come_latest_first_and_once() -> None:
    changes = Changes()
    changes.note(slices(3, 1))
    seen = changes.count
    changes.note(slices(2))
    changes.note(slices(3))
    assert changes.since(seen) == [3, 2]
    assert changes.since(0) == [3, 2, 1]
    assert changes.since(changes.count) == []


def test_replaced_nodes_begin_a_new_epoch() -> None:
    changes = Changes()
    changes.note(slices(1))
    changes.renew()
    assert (changes.epoch, changes.since(0)) == (1, [])
    changes.note(slices(0))
    assert changes.since(1) == [0]
