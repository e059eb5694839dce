"""`skep verify hived`: shared cells refuse nothing that a VC alone would take, quotas by number do."""

from __future__ import annotations

import pytest
from tests.support.cells_invariants import check_cells

from skep.scenarios.scheduler import GangScheduler
from skep.verify.cells import OWNED, CellsOnly, QuotaOnly, make_request, play, rack, total
from skep.verify.check import perform
from skep.verify.registry import select


def test_the_rack_is_that_of_the_paper() -> None:
    cells = GangScheduler(rack())
    chain = cells.chains["rack"]
    assert [len(level) for level in chain.cells] == [0, 32, 16, 8, 4, 1]
    assert [sorted(leaf.index for leaf in leaves) for leaves in cells.nodes.values()] == [list(range(8))] * 4
    assert chain.unused == [0, 2, 3, 2, 2, 0]
    check_cells(cells)


@pytest.mark.parametrize("can_borrow", [False, True], ids=["all work guaranteed", "others borrow what is idle"])
def test_cells_refuse_nothing_that_a_vc_alone_would_take(can_borrow: bool) -> None:
    count = total(with_cells=True, can_borrow=can_borrow, seeds=15)
    assert count.legal > 300
    assert count.refused == 0


def test_quotas_by_number_do() -> None:
    count = total(with_cells=False, can_borrow=False, seeds=15)
    assert count.legal > 300
    assert count.refused > 0


def test_the_same_seed_gives_the_same_count() -> None:
    assert play(3, QuotaOnly(), can_borrow=False) == play(3, QuotaOnly(), can_borrow=False)
    assert make_request(3, 4, can_borrow=True) == make_request(3, 4, can_borrow=True)


def test_what_is_done_to_the_rack_keeps_every_invariant() -> None:
    for seed in range(5):
        shared = CellsOnly(*OWNED)
        play(seed, shared, can_borrow=True)
        check_cells(shared.cells)


def test_it_is_found_by_its_name_and_holds() -> None:
    [check] = select(("hived",))
    found = perform(check)
    assert found.holds, found.findings
    assert [finding.expected for finding in found.findings] == ["0", "0", "more than 0"]
