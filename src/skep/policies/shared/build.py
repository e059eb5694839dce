"""The planner of a whole cluster: a policy by itself, or one in each VC with binding and lending beneath."""

from __future__ import annotations

import msgspec

from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.ports import Planner
from skep.policies.idle import NOBODY, Idle
from skep.policies.registry import Setting, build_planner
from skep.policies.rounds import Rounds
from skep.policies.shared.clusters import cell_clusters
from skep.policies.shared.planner import CELLS, Shared


def build_whole(policy: str, setting: Setting, layout: Layout | None, sharing: str = CELLS) -> Planner:
    if policy == NOBODY:
        return Idle()

    def make(vc: str, own_policy: str, cluster: Cluster) -> Planner:
        if own_policy == NOBODY:
            return Idle()
        return build_planner(
            own_policy or policy, msgspec.structs.replace(setting, cluster=cluster, vcs=(vc,) if vc else setting.vcs)
        )

    if layout is not None:
        check_policies(layout, setting)
    planner = make("", "", setting.cluster) if layout is None else Shared(layout, make, sharing)
    # Rounds are for everybody at once: lending must not start between them what a VC's planner has not seen.
    return Rounds(planner, setting.round_s) if setting.round_s else planner


def check_policies(layout: Layout, setting: Setting) -> None:
    """Each VC's planner is made only when it is attached; that is too late to refuse a policy that does not exist."""
    for vc in layout.vcs.values():
        try:
            if vc.policy not in ("", NOBODY):
                build_planner(vc.policy, setting)
        except InputError as error:
            raise InputError(f"VC {vc.name}: {error}", hint=error.hint) from None


def guaranteed_gpus(layout: Layout) -> dict[str, int]:
    """GPUs that each VC owns."""
    cells = Cells(layout)
    hardware = Hardware(cells)
    return {
        name: sum(part.gpu_total for part in cell_clusters(vc, cells, hardware, {})) for name, vc in layout.vcs.items()
    }
