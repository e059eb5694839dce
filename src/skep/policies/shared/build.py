"""The planner of a whole cluster: a policy by itself, or one in each VC with binding and lending beneath."""

from __future__ import annotations

import msgspec

from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster
from skep.core.ports import Planner
from skep.policies.registry import Setting, build_planner
from skep.policies.rounds import Rounds
from skep.policies.shared.planner import CELLS, Shared


def build_whole(policy: str, setting: Setting, layout: Layout | None, sharing: str = CELLS) -> Planner:
    def make(vc: str, own_policy: str, cluster: Cluster) -> Planner:
        return build_planner(own_policy or policy, msgspec.structs.replace(setting, cluster=cluster))

    planner = make("", "", setting.cluster) if layout is None else Shared(layout, make, sharing)
    # Rounds are for everybody at once: lending must not start between them what a VC's planner has not seen.
    return Rounds(planner, setting.round_s) if setting.round_s else planner
