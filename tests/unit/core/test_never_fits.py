"""A gang that can never fit is told so, and no other: against the question put to an empty copy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.core.cells.admit import never_fits
from skep.core.cells.cells import Cells
from skep.core.cells.gangs import Request
from skep.core.cells.layout import CellSpec, CellType, Grant, Layout, VcLayout
from skep.core.errors import InputError

KINDS = {"A": 4, "B": 2}
"""Gpu type → gpus of a node, in two sockets; a pool has three nodes."""


def pool(kind: str) -> CellSpec:
    def node(name: str) -> CellSpec:
        half = KINDS[kind] // 2
        sockets = [
            CellSpec(f"{kind}-SOCK", f"{kind}/{name}/{socket}", name, children=gpus(kind, name, socket, half))
            for socket in range(2)
        ]
        return CellSpec(f"{kind}-NODE", f"{kind}/{name}", name, f"pin-{name}", sockets)

    return CellSpec(f"{kind}-POOL", kind, children=[node(f"{kind}{number}") for number in range(3)])


def gpus(kind: str, node: str, socket: int, half: int) -> list[CellSpec]:
    return [CellSpec(kind, f"{kind}/{node}/{socket}/{socket * half + at}", node) for at in range(half)]


def layout(*grants: Grant, pinned: tuple[str, ...] = ()) -> Layout:
    types = {}
    for kind, count in KINDS.items():
        types[f"{kind}-SOCK"] = CellType(f"{kind}-SOCK", kind, count // 2)
        types[f"{kind}-NODE"] = CellType(f"{kind}-NODE", f"{kind}-SOCK", 2, is_node=True)
        types[f"{kind}-POOL"] = CellType(f"{kind}-POOL", f"{kind}-NODE", 3)
    return Layout(types, [pool(kind) for kind in KINDS], {"v": VcLayout("v", list(grants), list(pinned))})


NODE_AND_SOCKET = layout(Grant("A-POOL", "A-NODE", 1), Grant("A-POOL", "A-SOCK", 1))


def gang(pods: dict[int, int], *, priority: int = 0, kind: str = "", pinned: str = "") -> Request:
    return Request("g", "v", priority, pods, gpu_type=kind, pinned=pinned)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (gang({4: 1, 2: 1}), ""),
        (gang({5: 1}), "a pod needs 5 gpus, the largest node of VC v has 4"),
        (gang({2: 4}), "the gang needs 8 gpus, VC v has 6"),
        (gang({4: 1, 1: 2}), ""),
        (gang({3: 2}), "the gang has 2 pods of 3 gpus, the nodes of VC v have room for 1"),
        (gang({3: 1, 2: 1}), ""),
        (gang({1: 10**9}), "the gang needs 1000000000 gpus, VC v has 6"),
        (gang({4: 3}, priority=-1), ""),
        (gang({4: 4}, priority=-1), "the gang needs 16 gpus, the cluster's A-POOL has 12"),
        (gang({2: 3}, priority=-1, kind="B"), ""),
        (gang({4: 1}, priority=-1, kind="B"), "a pod needs 4 gpus, the largest node of the cluster's B-POOL has 2"),
    ],
)
def test_the_plainest_reason_is_given(request_: Request, reason: str) -> None:
    assert never_fits(Cells(NODE_AND_SOCKET), request_) == reason


def test_a_packing_that_does_not_exist_is_a_reason() -> None:
    two_nodes = Cells(layout(Grant("A-POOL", "A-NODE", 2)))
    assert never_fits(two_nodes, gang({3: 2, 1: 2})) == ""
    assert never_fits(two_nodes, gang({3: 2, 2: 1})) == "the pods of the gang cannot be packed onto the nodes of VC v"


def test_a_pinned_cell_counts_alone() -> None:
    cells = Cells(layout(Grant("A-POOL", "A-NODE", 2), pinned=("pin-A0",)))
    assert never_fits(cells, gang({4: 1}, pinned="pin-A0")) == ""
    assert never_fits(cells, gang({4: 2}, pinned="pin-A0")) == "the gang needs 8 gpus, the pinned cell pin-A0 has 4"
    assert never_fits(cells, gang({4: 3})) == "the gang needs 12 gpus, VC v has 8"


def test_a_vc_without_cells_has_only_opportunistic_work() -> None:
    cells = Cells(layout())
    assert "only opportunistic work" in never_fits(cells, gang({1: 1}))
    assert never_fits(cells, gang({1: 1}, priority=-1)) == ""


def test_what_runs_and_what_is_bad_does_not_matter() -> None:
    cells = Cells(NODE_AND_SOCKET)
    for number in range(3):
        cells.set_node(f"A{number}", is_bad=True)
    assert cells.ask(gang({4: 1})).placement is None
    assert never_fits(cells, gang({4: 1})) == ""
    cells = Cells(NODE_AND_SOCKET)
    answer = cells.ask(gang({4: 1, 2: 1}, priority=1000))
    assert answer.placement is not None
    cells.allocate(gang({4: 1, 2: 1}, priority=1000), answer.placement)
    assert never_fits(cells, gang({4: 1}, priority=0)) == ""


def test_what_cannot_be_asked_is_an_error_as_in_ask() -> None:
    with pytest.raises(InputError, match="no gpu type 'H100'"):
        never_fits(Cells(NODE_AND_SOCKET), gang({1: 1}, kind="H100"))


GRANTS = st.lists(
    st.builds(
        lambda kind, level, count: Grant(f"{kind}-POOL", f"{kind}-{level}" if level else kind, count),
        st.sampled_from("AB"),
        st.sampled_from(["NODE", "SOCK", ""]),
        st.integers(1, 1),
    ),
    max_size=3,
    unique_by=lambda grant: (grant.chain, grant.type),
)
GANGS = st.dictionaries(st.integers(1, 5), st.integers(1, 4), min_size=1, max_size=3)


@given(GRANTS, GANGS, st.sampled_from([-1, 0, 7]), st.sampled_from(["", "A", "B"]))
def test_the_same_as_asking_an_empty_copy(grants: list[Grant], pods: dict[int, int], priority: int, kind: str) -> None:
    owned = layout(*grants)
    request = gang(pods, priority=priority, kind=kind)
    try:
        fits = Cells(owned).ask(request).placement is not None
    except InputError:
        with pytest.raises(InputError):
            never_fits(Cells(owned), request)
        return
    assert (never_fits(Cells(owned), request) == "") == fits
