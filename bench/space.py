"""What ended jobs leave on the disk: `python -m bench.space [--jobs 1000]`.

A real server runs trivial jobs, one line of output each; the disk is measured when all have ended, and again when their
files are packed.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

import click
import httpx
from bench.crash import Server

from skep.engines.local.upkeep import PACK_S
from skep.engines.local.walk import ENTRY_BYTES, Walk

TABLES = ("jobs", "attempts", "events", "log", "snapshots")


def blocks(folder: Path) -> int:
    """Without what an entry counts for in quotas."""
    walk = Walk([folder])
    entries = 10**9 - walk.go(10**9)
    return walk.bytes - entries * ENTRY_BYTES


def run_jobs(server: Server, count: int) -> None:
    for first in range(0, count, 500):
        jobs = [{"name": f"job{n}", "command": "echo hi"} for n in range(first, min(first + 500, count))]
        httpx.post(f"{server.url}/jobs:batch", json={"jobs": jobs}, timeout=600).raise_for_status()
    while httpx.get(f"{server.url}/jobs", params={"limit": 1}, timeout=600).json()["jobs"]:
        time.sleep(0.5)


def wait_until_packed(folder: Path, count: int) -> None:
    by_s = time.monotonic() + PACK_S + 600
    while sum(path.suffix == ".packed" for path in folder.iterdir()) < count or any(map(Path.is_dir, folder.iterdir())):
        assert time.monotonic() < by_s, "they are not packed"
        time.sleep(1)


def table_sizes(store: Path) -> dict[str, int]:
    db = sqlite3.connect(store)
    rows = db.execute(
        "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
    ).fetchall()
    db.close()
    return dict(rows)


@click.command()
@click.option("--jobs", "count", default=1000, show_default=True)
def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="skep-space-") as folder:
        data = Path(folder) / "data"
        server = Server(data, cluster="8x8")
        server.start()
        try:
            run_jobs(server, count)
            print(f"{count:,} jobs that print one line; bytes on the disk for each")
            print(f"  files when they have ended   {blocks(data / 'jobs') / count:8,.0f}")
            wait_until_packed(data / "jobs", count)
            print(f"  files when they are packed   {blocks(data / 'jobs') / count:8,.0f}")
        finally:
            server.stop()
        sizes = table_sizes(data / "skep.db")
        print(f"  the store                    {(data / 'skep.db').stat().st_size / count:8,.0f}")
        for name in TABLES:
            print(f"    {name:<27}{sizes.get(name, 0) / count:8,.0f}")


if __name__ == "__main__":
    main()
