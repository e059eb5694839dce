"""Draws follow from the identity alone, and are well mixed."""

from __future__ import annotations

from skep.core.chance import MASK, draw


def test_the_same_identity_draws_the_same_number() -> None:
    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert 0 <= draw(1, 2, 3) <= MASK


def test_every_part_and_its_place_matter() -> None:
    assert len({draw(1, 2), draw(2, 1), draw(1, 2, 0), draw(1), draw(0, 1, 2)}) == 5


def test_a_negative_part_is_taken_as_64_bits() -> None:
    assert draw(-1) == draw(MASK)


def test_neighbouring_identities_differ_in_about_half_of_the_bits() -> None:
    flipped = [(draw(number) ^ draw(number + 1)).bit_count() for number in range(200)]
    assert 28 <= sum(flipped) / len(flipped) <= 36
