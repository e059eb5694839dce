from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from skep.profiles.pipeswitch import best_grouping, switch_s

TRANSFER, EXECUTE = (3, 1, 1, 1, 2), (1, 1, 2, 1, 1)


def test_pipeswitch_groups() -> None:
    assert switch_s(TRANSFER, EXECUTE, 0.5, (5,)) == 14.5
    assert switch_s(TRANSFER, EXECUTE, 0.5, (1,) * 5) == 11.5
    best_s, grouping = best_grouping(TRANSFER, EXECUTE, 0.5)
    assert best_s == 11.0
    assert switch_s(TRANSFER, EXECUTE, 0.5, grouping) == 11.0


TIMES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=7)


@given(TIMES, st.integers(0, 4))
def test_the_pruned_search_finds_what_trying_all_groupings_finds(layers: list[tuple[int, int]], each: int) -> None:
    transfer, execute = zip(*layers, strict=True)
    count = len(layers)
    groupings = []
    for cuts in itertools.product((False, True), repeat=count - 1):
        sizes = [1]
        for is_cut in cuts:
            if is_cut:
                sizes.append(1)
            else:
                sizes[-1] += 1
        groupings.append(tuple(sizes))
    naive = min((switch_s(transfer, execute, each, grouping), grouping) for grouping in groupings)
    assert best_grouping(transfer, execute, each) == naive
