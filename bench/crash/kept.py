"""Faults of what is kept and of time: damaged stores, and clocks that are set."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from bench import damage
from bench.crash.faults import Scene, server

DAY_S = 86400.0


def clock_forward(scene: Scene) -> None:
    """40 days for a moment, as when a time server is wrong."""
    set_clock(scene, 40 * DAY_S)


def clock_back(scene: Scene) -> None:
    set_clock(scene, -40 * DAY_S)


def clock_over_restart(scene: Scene) -> None:
    """It is wrong while a server starts, and right again later."""
    scene.server.clock.write_text(str(scene.chance.choice((-1, 1)) * 40 * DAY_S))
    server(scene)
    scene.wait(1.0)
    scene.server.clock.write_text("0")


def set_clock(scene: Scene, by_s: float) -> None:
    scene.server.clock.write_text(str(by_s))
    scene.wait(1.0)
    scene.server.clock.write_text("0")


def damaged_store(scene: Scene) -> None:
    """What a killed server leaves, damaged in a copy: refused in a line, or everything that is asked is answered."""
    scene.server.kill()
    kind = scene.chance.choice(list(damage.KINDS))
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for path in scene.server.data.glob("skep.db*"):
            if path.name in ("skep.db", "skep.db-wal"):
                shutil.copy(path, copy)
        (copy / "jobs" / "1").mkdir(parents=True)
        damage.damage(copy, kind, scene.chance.randrange(1 << 30))
        found = damage.outcome(copy, time.time())
        assert found in ("refused", "serves"), f"{kind}: {found}"
    scene.start()
