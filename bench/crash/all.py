"""All kinds of faults by name."""

from __future__ import annotations

from bench.crash.faults import (
    Fault,
    pause_all,
    pause_server,
    pause_shims,
    power,
    restart,
    server,
    server_and_shims,
    server_and_some_shims,
    server_at_start,
    shims,
    tasks,
)
from bench.crash.kept import clock_back, clock_forward, clock_over_restart, damaged_store

FAULTS: dict[str, Fault] = {
    "server": server,
    "server-at-start": server_at_start,
    "restart": restart,
    "power": power,
    "server-and-shims": server_and_shims,
    "server-and-some-shims": server_and_some_shims,
    "shims": shims,
    "tasks": tasks,
    "pause-server": pause_server,
    "pause-shims": pause_shims,
    "pause-all": pause_all,
    "clock-forward": clock_forward,
    "clock-back": clock_back,
    "clock-over-restart": clock_over_restart,
    "damaged-store": damaged_store,
}
SERVER_ONLY = {"server", "server-at-start", "restart", "pause-server", "pause-all"} | {
    "clock-forward",
    "clock-back",
    "clock-over-restart",
    "damaged-store",
}
"""Faults after which every task has still run once."""
