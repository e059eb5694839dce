"""Writes `data/store-N.sql` with the present format: a store with ended, running and pending jobs, a time limit and a
snapshot. To be run before the first release of a format, never after it."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from live_world import LiveWorld, request

from skep.service.schema import APPLICATION, VERSION


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = LiveWorld(Path(folder))
        world.submit(request("first", gpus=4))
        world.submit(request("second", gpus=2))
        world.settle()
        world.end("1")
        world.end("2", 1)
        world.writer.save_snapshot()
        world.submit(request("third", gpus=8, time_limit_s=3600.0))
        world.submit(request("fourth", gpus=2))
        world.submit(request("last"))
        world.settle()
        world.store.close()
        lines = sqlite3.connect(Path(folder) / "skep.db").iterdump()
        marks = [f"PRAGMA application_id={APPLICATION};", f"PRAGMA user_version={VERSION};"]
        target = Path(__file__).parent / "data" / f"store-{VERSION}.sql"
        target.write_text("\n".join([*lines, *marks]) + "\n")


if __name__ == "__main__":
    main()
