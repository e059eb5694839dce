"""What survived a full collection is left out of the next ones, for an hour."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from skep.server.collector import EVERYTHING_EVERY_S, Collector, short_pauses


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def now() -> Iterator[list[float]]:
    """A clock; its collector is at work."""
    now = [0.0]
    collector = Collector(lambda: now[0])
    gc.callbacks.append(collector)
    yield now
    gc.callbacks.remove(collector)
    gc.unfreeze()


def test_what_never_got_old_is_freed_at_once(now: list[float]) -> None:
    ring = weakref.ref(Ring())
    gc.collect()
    assert ring() is None


def test_what_got_old_is_freed_within_the_hour(now: list[float]) -> None:
    ring = Ring()
    gc.collect()
    gone = weakref.ref(ring)
    del ring
    now[0] = EVERYTHING_EVERY_S - 1
    gc.collect()
    assert gone() is not None
    now[0] = EVERYTHING_EVERY_S
    gc.collect()
    assert gone() is None


def test_a_full_collection_walks_only_what_is_new(now: list[float]) -> None:
    gc.collect()
    assert gc.get_freeze_count() > 1000
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10


def test_nothing_stays_frozen() -> None:
    with short_pauses():
        gc.collect()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
