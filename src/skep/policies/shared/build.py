"""Builds the planner of a whole cluster: a single policy, or one per VC with binding and lending below."""

from __future__ import annotations

import msgspec

from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cells.layout import Layout
from skep.core.errors import InputError
from skep.core.model import Need
from skep.core.ports import Planner
from skep.core.view import ClusterView
from skep.policies.idle import NO_POLICY, Idle
from skep.policies.registry import Setting, build_planner, needs_of
from skep.policies.shared.cell_books import cell_books
from skep.policies.shared.planner import VcPlanner
from skep.policies.shared.vc import CELLS


def build_whole(policy: str, setting: Setting, layout: Layout | None, sharing: str = CELLS) -> Planner:
    if policy == NO_POLICY:
        return Idle()

    def make(vc: str, own_policy: str, cluster: ClusterView) -> Planner:
        if own_policy == NO_POLICY:
            return Idle()
        return build_planner(
            own_policy or policy, msgspec.structs.replace(setting, cluster=cluster, vcs=(vc,) if vc else setting.vcs)
        )

    one = make("", "", setting.cluster)
    if layout is None:
        return one
    check_policies(layout, msgspec.structs.replace(setting, round_s=one.round_s))
    named = {vc.name: vc.policy or policy for vc in layout.vcs.values()}
    nothing: frozenset[Need] = frozenset()
    needs = {vc: nothing if own == NO_POLICY else needs_of(own, setting.texts) for vc, own in named.items()}
    shared = VcPlanner(layout, make, sharing, needs)
    shared.round_s = one.round_s
    return shared


def check_policies(layout: Layout, setting: Setting) -> None:
    """The planner of each VC is built only when it is attached, which is too late to refuse a policy that does not
    exist."""
    for vc in layout.vcs.values():
        try:
            if vc.policy not in ("", NO_POLICY):
                check_rounds(build_planner(vc.policy, setting).round_s, setting.round_s)
        except InputError as error:
            raise InputError(f"VC {vc.name}: {error}", hint=error.hint) from None


def check_rounds(own_s: float, all_s: float) -> None:
    """All VCs must have the same rounds: lending must not start a job between rounds that its VC's planner has not
    seen."""
    if own_s != all_s:
        others = f"those of the others take {all_s:g} s" if all_s else "the others have no rounds"
        raise InputError(f"its policy decides in rounds of {own_s:g} s, {others}", hint="all VCs need the same rounds")


def guaranteed_gpus(layout: Layout) -> dict[str, int]:
    """GPUs that each VC owns."""
    cells = Cells(layout)
    hardware = Hardware(cells)
    return {
        name: sum(part.cluster.gpu_total for part in cell_books(vc, cells, hardware, {}))
        for name, vc in layout.vcs.items()
    }
