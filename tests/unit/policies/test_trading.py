"""Trades between GPU types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.policies.allocate.trading import trade


def worth(fast: dict[str, float], slow: dict[str, float], speed_ups: dict[str, float]) -> dict[str, float]:
    return {user: fast.get(user, 0.0) * speed_ups[user] + slow.get(user, 0.0) for user in speed_ups}


def test_four_fast_and_twelve_slow_gpus() -> None:
    fast, slow, speed_ups = {"A": 2.0, "B": 2.0}, {"A": 6.0, "B": 6.0}, {"A": 1.2, "B": 5.0}
    assert worth(fast, slow, speed_ups) == {"A": 8.4, "B": 16.0}
    after = trade(fast, slow, speed_ups, price=2.0)
    assert worth(*after, speed_ups) == pytest.approx({"A": 10.0, "B": 22.0})


def test_the_price_is_the_second_highest_speed_up() -> None:
    fast, slow = dict.fromkeys("ABC", 1.0), dict.fromkeys("ABC", 6.0)
    speed_ups = {"A": 1.0, "B": 2.0, "C": 4.0}
    after_fast, after_slow = trade(fast, slow, speed_ups)
    assert after_fast["C"] == pytest.approx(2 + 1, abs=1e-9) or after_fast["C"] == pytest.approx(2.0)
    assert after_slow["A"] == pytest.approx(6 + 2)  # C paid B's 2 for A's GPU


def test_no_trade_outside_of_the_speed_ups() -> None:
    fast, slow, speed_ups = {"A": 2.0, "B": 2.0}, {"A": 6.0, "B": 6.0}, {"A": 1.2, "B": 1.5}
    assert trade(fast, slow, speed_ups, price=2.0) == (fast, slow)
    assert trade(fast, slow, {"A": 1.2}) == (fast, slow)


SHARES = st.dictionaries(st.sampled_from("ABCDE"), st.floats(0, 20), min_size=2)


@given(SHARES, st.floats(0, 20), st.floats(0.2, 3), st.data())
def test_nobody_ends_below_its_fair_share_and_nothing_is_lost(
    fast: dict[str, float], scale: float, price: float, data: st.DataObject
) -> None:
    slow = {user: each * scale for user, each in fast.items()}
    speed_ups = {user: data.draw(st.floats(0.1, 10)) for user in fast}
    given_price = data.draw(st.sampled_from([0.0, price]))
    after_fast, after_slow = trade(fast, slow, speed_ups, given_price)
    before, after = worth(fast, slow, speed_ups), worth(after_fast, after_slow, speed_ups)
    for user in fast:
        assert after[user] >= before[user] - 1e-6
        assert after_fast[user] >= -1e-9
        assert after_slow[user] >= -1e-9
    assert sum(after_fast.values()) == pytest.approx(sum(fast.values()))
    assert sum(after_slow.values()) == pytest.approx(sum(slow.values()))
