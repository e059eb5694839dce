"""For tests of Skep and of user-written policies: builders, runs that are checked at every step, invariants."""

from __future__ import annotations

from tests.support.builders import cluster, job, node, role, take_trigger, trace
from tests.support.invariants import Checker, check
from tests.support.snapshot import snapshot, snapshot_cluster
from tests.support.world import World

__all__ = [
    "Checker",
    "World",
    "check",
    "cluster",
    "job",
    "node",
    "role",
    "snapshot",
    "snapshot_cluster",
    "take_trigger",
    "trace",
]
