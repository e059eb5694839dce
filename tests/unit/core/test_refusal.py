"""Waiting is booked per scope and cause."""

from __future__ import annotations

from skep.core.refusal import Cause, Waits


def test_only_the_booked_causes_have_a_clock() -> None:
    waits = Waits()
    waits.refuse("line", Cause.QUOTA, 0.0)
    waits.refuse("line", Cause.FRAGMENTATION, 10.0)
    waits.refuse("line", Cause.CAPACITY, 14.0)
    waits.refuse("line", Cause.QUOTA, 20.0)
    waiting = waits.of("line", 20.0)
    waiting.settle(21.0)
    assert (waiting.quota_s, waiting.fragmentation_s, waiting.since_s) == (11.0, 4.0, 21.0)


def test_a_scope_without_jobs_does_not_make_the_cluster_fragmented() -> None:
    waits = Waits()
    waits.refuse("line", Cause.FRAGMENTATION, 0.0)
    assert not waits.is_fragmented
    waits.of("line", 0.0).jobs = 1
    assert waits.is_fragmented
    waits.refuse("line", Cause.ORDER, 1.0)
    assert not waits.is_fragmented


def test_dropped_scopes_are_those_of_the_prefix() -> None:
    waits = Waits()
    for scope in ("red/a", "red/b", "blue/a"):
        waits.refuse(scope, Cause.FRAGMENTATION, 0.0)
    assert len(waits.drop("red/")) == 2
    assert list(waits.scopes) == list(waits.fragmented) == ["blue/a"]


def test_a_clock_that_was_set_books_no_time() -> None:
    waits = Waits()
    waits.refuse("line", Cause.QUOTA, 5.0)
    waits.shift(100.0)
    waits.refuse("line", Cause.ORDER, 107.0)
    assert waits.of("line", 107.0).quota_s == 2.0
