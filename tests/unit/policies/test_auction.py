"""The auction of Themis: welfare, payments, and that lies do not pay."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.policies.allocate import auction
from skep.policies.allocate.auction import Bid, Parcel, best, fits, improve, log_welfare, rest, sell

NOTHING = 1e-3


def by_count(values: list[float]) -> list[Parcel]:
    return [Parcel((0,), NOTHING), *(Parcel((count,), value) for count, value in enumerate(values, start=1))]


def test_two_apps_on_four_gpus() -> None:
    first = by_count([10 / (2 + 8 / k) for k in range(1, 5)])
    second = by_count([8 / (1 + 12 / k) for k in range(1, 5)])
    sale = sell([first, second], (4,))
    assert sale.bundles == [2, 2]
    assert math.exp(log_welfare([first, second], sale.bundles)) == pytest.approx(1.9048, abs=1e-4)
    assert sale.kept == pytest.approx([0.5714, 0.6667], abs=1e-4)


def test_one_bidder_keeps_all() -> None:
    sale = sell([by_count([1.0, 2.0, 3.0])], (2,))
    assert sale == ([2], [1.0])
    assert sell([], (4,)) == ([], [])


@st.composite
def bids(draw: st.DrawFn) -> Bid:
    """Bundles on two GPU types."""
    values = st.floats(0.05, 20.0)
    bundles = st.builds(Parcel, st.tuples(st.integers(0, 3), st.integers(0, 3)), values)
    return [Parcel((0, 0), draw(values)), *draw(st.lists(bundles, min_size=1, max_size=3))]


OFFERS = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(st.lists(bids(), min_size=1, max_size=4), OFFERS)
def test_no_other_choice_has_more_welfare(drawn: list[Bid], offer: tuple[int, ...]) -> None:
    sale = sell(drawn, offer)
    assert min(rest(drawn, offer, sale.bundles)) >= 0
    found = log_welfare(drawn, sale.bundles)
    for chosen in itertools.product(*(range(len(bid)) for bid in drawn)):
        if min(rest(drawn, offer, chosen)) >= 0:
            assert log_welfare(drawn, chosen) <= found + 1e-9
    assert all(0 < kept <= 1 for kept in sale.kept)


@given(st.lists(bids(), min_size=2, max_size=4), OFFERS, st.data())
def test_a_lie_gains_nothing(drawn: list[Bid], offer: tuple[int, ...], data: st.DataObject) -> None:
    """A bidder gains the value of its bundle times the part that it keeps."""
    honest = sell(drawn, offer)
    liar = data.draw(st.integers(0, len(drawn) - 1))
    lie = [Parcel(bundle.gpus, data.draw(st.floats(0.01, 100.0))) for bundle in drawn[liar]]
    lied = sell([*drawn[:liar], lie, *drawn[liar + 1 :]], offer)

    def gain(bundles: list[int], kept: list[float]) -> float:
        return drawn[liar][bundles[liar]].value * kept[liar]

    assert gain(*lied) <= gain(*honest) * (1 + 1e-9)


@given(st.lists(bids(), min_size=1, max_size=5), OFFERS)
def test_local_search_is_sound_and_pays_at_most_one(drawn: list[Bid], offer: tuple[int, ...]) -> None:
    exact = log_welfare(drawn, best(drawn, offer, [0] * len(drawn)))
    found = improve(drawn, offer, [0] * len(drawn))
    assert min(rest(drawn, offer, found)) >= 0
    nothing = log_welfare(drawn, [0] * len(drawn))
    assert nothing - 1e-9 <= log_welfare(drawn, found) <= exact + 1e-9


def test_many_bidders_are_served_by_local_search() -> None:
    drawn = [[Parcel((0,), 1.0), Parcel((2,), 1.0 + number)] for number in range(20)]
    assert math.prod(map(len, drawn)) > auction.EXACT_MAX
    sale = sell(drawn, (10,))
    assert [number for number, at in enumerate(sale.bundles) if at] == [15, 16, 17, 18, 19]
    assert all(0 < kept <= 1 for kept in sale.kept)
    assert fits((2,), (2,))
