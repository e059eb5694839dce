"""Checks of switching between jobs on a GPU."""

from __future__ import annotations

from skep.profiles.pipeswitch import best_grouping, switch_s
from skep.verify.check import Check, Finding, same

TRANSFER_S, EXECUTE_S, GROUP_S = (3, 1, 1, 1, 2), (1, 1, 2, 1, 1), 0.5


def groups() -> list[Finding]:
    def seen_s(*grouping: int) -> float:
        return switch_s(TRANSFER_S, EXECUTE_S, GROUP_S, grouping)

    return [
        same("seconds if all layers are copied before any runs", 14.5, seen_s(5)),
        same("seconds if each layer runs as soon as it is copied", 11.5, seen_s(1, 1, 1, 1, 1)),
        same("seconds with the best groups of layers", 11.0, best_grouping(TRANSFER_S, EXECUTE_S, GROUP_S)[0]),
    ]


CHECKS = (
    Check(
        name="pipelined-switch",
        policy="pipeswitch",
        title="A model whose layers are copied in groups runs sooner than one that is copied whole or layer by layer",
        source="PipeSwitch, pipelined model transmission; by hand: layers copied in 3, 1, 1, 1 and 2 s run in 1, 1, 2, "
        "1 and 1 s, and each group costs 0.5 s",
        ask=groups,
    ),
)
