"""Trades of Gandiva_fair: users exchange their shares of a GPU type for shares of another one, so that both gain.

A user with a low speed-up gives GPUs of the fast type to a user with a high one and gets `price` GPUs of the slow type
for each. With a price between the two speed-ups both are better off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

GAIN_MIN = 1e-6
"""Trades of fewer GPUs than this are not made."""


def trade(
    fast: Mapping[str, float], slow: Mapping[str, float], speed_ups: Mapping[str, float], price: float = 0.0
) -> tuple[dict[str, float], dict[str, float]]:
    """What each user has of both types after all trades. Only users in `speed_ups` trade. `price` 0: the second-highest
    speed-up; between two users alone, the geometric mean of theirs."""
    fast, slow = dict(fast), dict(slow)
    order = sorted(speed_ups, key=lambda user: (speed_ups[user], user))
    for borrower in reversed(order):
        for lender in order:
            asked = price or second_price(order, speed_ups, lender, borrower)
            if speed_ups[lender] < asked < speed_ups[borrower]:
                gpus = min(fast.get(lender, 0.0), slow.get(borrower, 0.0) / asked)
                if gpus > GAIN_MIN:
                    fast[lender] -= gpus
                    fast[borrower] = fast.get(borrower, 0.0) + gpus
                    slow[borrower] -= gpus * asked
                    slow[lender] = slow.get(lender, 0.0) + gpus * asked
    return fast, slow


def second_price(order: list[str], speed_ups: Mapping[str, float], lender: str, borrower: str) -> float:
    """The highest speed-up of the other users who could borrow."""
    others = [speed_ups[user] for user in order if user not in (lender, borrower)]
    rivals = [each for each in others if speed_ups[lender] < each < speed_ups[borrower]]
    return max(rivals) if rivals else math.sqrt(speed_ups[lender] * speed_ups[borrower])
