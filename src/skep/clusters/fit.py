"""What the virtual clusters own of each chain, whether that fits, and what is left.

Pinned cells are subtracted first: a cell around a pinned one is no longer whole, so that it cannot be granted as such,
while its other children can. HiveD only counts, and aborts later if two pins in two racks and a promised rack add up
but do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from skep.core.cells.layout import CellSpec, CellType, Layout
from skep.core.errors import InputError
from skep.files.document import Field


class Shortage(NamedTuple):
    chain: str
    level: int
    type: str
    needed: int
    available: int


class FitAccount:
    """The cells of one chain: index 0 of each list is the level of GPUs."""

    def __init__(self, chain: str, types: list[CellType]) -> None:
        self.chain = chain
        self.types = types
        self.total = [0] * len(types)
        """All cells."""
        self.whole = [0] * len(types)
        """Cells without a pinned cell, directly below a cell that has one; or top cells."""
        self.pinned = [0] * len(types)
        self.granted = [0] * len(types)
        """Without the pinned ones."""
        self.sizes = _sizes(types)
        """GPUs in one cell."""

    def shortage(self) -> Shortage | None:
        """The highest level where more is granted than larger grants leave, as HiveD counts: from the top."""
        left_above = 0
        for at in reversed(range(len(self.types))):
            fan_out = self.types[at + 1].count if at + 1 < len(self.types) else 0
            available = left_above * fan_out + self.whole[at]
            left_above = available - self.granted[at]
            if left_above < 0:
                pinned = self.pinned[at]
                needed = self.granted[at] + pinned
                return Shortage(self.chain, at + 1, self.types[at].name, needed, available + pinned)
        return None

    def left(self) -> list[int]:
        """Cells without an owner, as large as possible: a cell is split only for a grant below it."""
        broken = self._broken()
        left = []
        for at, granted in enumerate(self.granted):
            gained = broken[at + 1] * self.types[at + 1].count if at + 1 < len(self.types) else 0
            left.append(self.whole[at] + gained - granted - broken[at])
        return left

    def _broken(self) -> list[int]:
        """How many cells of each level must be split for what is granted below."""
        broken = [0] * len(self.types)
        for at in range(1, len(self.types)):
            short = max(0, self.granted[at - 1] + broken[at - 1] - self.whole[at - 1])
            broken[at] = -(-short // self.types[at].count)
        return broken


def _sizes(types: list[CellType]) -> list[int]:
    sizes = [1]
    for kind in types[1:]:
        sizes.append(sizes[-1] * kind.count)
    return sizes


def accounts(layout: Layout) -> dict[str, FitAccount]:
    """The books of every chain, in the order of its first cell."""
    found: dict[str, FitAccount] = {}
    claimed = {name for vc in layout.vcs.values() for name in vc.pinned}
    for cell in layout.cells:
        account = found.get(cell.type)
        if account is None:
            account = found[cell.type] = FitAccount(cell.type, layout.chain_types(cell.type))
        top = len(account.types) - 1
        for at, size in enumerate(account.sizes):
            account.total[at] += account.sizes[top] // size
        if not claimed or not _carve(cell, top, claimed, account):
            account.whole[top] += 1
    for vc in layout.vcs.values():
        for grant in vc.grants:
            account = found[grant.chain]
            account.granted[[kind.name for kind in account.types].index(grant.type)] += grant.count
    return found


def _carve(cell: CellSpec, at: int, claimed: set[str], account: FitAccount) -> bool:
    """True if it contains a pinned cell; its children without one are then whole cells of their own."""
    if cell.pinned in claimed:
        account.pinned[at] += 1
        return True
    carved = [_carve(child, at - 1, claimed, account) for child in cell.children]
    if not any(carved):
        return False
    account.whole[at - 1] += carved.count(False)
    return True


def refuse_misfit(
    layout: Layout, granted: Mapping[tuple[str, str], Field], pinned: Mapping[str, Field], *, cells: str
) -> None:
    """Raises if the VCs own more than there is.

    `granted` has the last field that grants cells of a (chain, type), `pinned` that of every pinned cell.
    """
    for outer, inner in _nested(layout.cells, "", pinned):
        raise pinned[inner].trouble(f"{pinned[inner].path}: {inner} lies in {outer}, which is owned as well")
    for account in accounts(layout).values():
        short = account.shortage()
        if short is not None:
            raise _misfit(layout, short, granted[short.chain, short.type], cells)


def _nested(cells: list[CellSpec], outer: str, pinned: Mapping[str, Field]) -> list[tuple[str, str]]:
    """(outer, inner) of owned cells of which one contains the other."""
    if not pinned:
        return []
    found: list[tuple[str, str]] = []
    for cell in cells:
        is_owned = cell.pinned in pinned
        if is_owned and outer:
            found.append((outer, cell.pinned))
        found += _nested(cell.children, cell.pinned if is_owned else outer, pinned)
    return found


def _misfit(layout: Layout, short: Shortage, field: Field, cells: str) -> InputError:
    asked: dict[str, int] = {}
    for vc in layout.vcs.values():
        for grant in vc.grants:
            if (grant.chain, grant.type) == (short.chain, short.type):
                asked[vc.name] = asked.get(vc.name, 0) + grant.count
    pinned = short.needed - sum(asked.values())
    parts = [f"{name} {count}" for name, count in asked.items()] + ([f"pinned {pinned}"] if pinned else [])
    return field.trouble(
        f"{field.path}: chain {short.chain}, level {short.level} ({short.type}): "
        f"{short.needed} needed, {short.available} available",
        hint=f"owners: {' + '.join(parts)}; larger cells come first; lower a {cells} or add hardware",
    )
