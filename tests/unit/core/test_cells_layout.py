"""A layout as values."""

from __future__ import annotations

from tests.unit.scenarios.small_cells import layout

from skep.core.cells.layout import CellType, Layout


def test_the_types_of_a_chain_from_the_gpu_upwards() -> None:
    made = layout()
    assert [kind.name for kind in made.chain_types("rack")] == ["gpu", "switch", "node", "rack"]
    assert made.chain_types("gpu") == [CellType("gpu")]
    assert Layout({}, []).chain_types("a100") == [CellType("a100")]
