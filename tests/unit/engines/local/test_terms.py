"""What the share mode of an allocation means for the turns of a launch."""

from __future__ import annotations

import pytest

from skep.core.cluster import WHOLE, Allocation, Slice
from skep.engines.local.run import terms_of

ONE = Allocation((Slice(0, 0b1),), 1)


@pytest.mark.parametrize(("mode", "milli"), [("mps", 300), ("mig", 142), ("pack", 300)])
def test_a_mode_without_turns_is_never_paused(mode: str, milli: int) -> None:
    limit = WHOLE if mode == "pack" else milli
    assert terms_of(ONE.on_terms(mode=mode, milli=milli, limit=limit), {0: "n0"}) is None


def test_a_limit_that_was_set_since_the_start_holds_in_every_mode() -> None:
    for allocation in (ONE, ONE.on_terms(mode="mps", milli=300, limit=300)):
        found = terms_of(allocation, {0: "n0"}, limit=200)
        assert found is not None
        assert found.limit == 0.2


def test_tokens_have_a_request_and_a_limit() -> None:
    found = terms_of(ONE.on_terms(mode="token", milli=300, limit=600), {0: "n0"})
    assert found is not None
    assert (found.request, found.limit) == (0.3, 0.6)
