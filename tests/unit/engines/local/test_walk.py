"""What folders take of the disk, whatever their jobs do to them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from skep.engines.local.walk import ENTRY_BYTES, Walk, measured

MIB = 1 << 20


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_blocks_count_not_lengths(tmp_path: Path) -> None:
    write(tmp_path / "a" / "full", MIB)
    with (tmp_path / "a" / "hole").open("wb") as hole:
        hole.truncate(1 << 40)
    assert MIB <= measured(tmp_path) < 1.1 * MIB


def test_many_small_files_count_too(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert measured(tmp_path) >= 1000 * ENTRY_BYTES


def test_links_lead_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "large", 4 * MIB)
    job = tmp_path / "job"
    write(job / "own", MIB)
    (job / "up").symlink_to(tmp_path)
    (job / "root").symlink_to("/")
    os.mkfifo(job / "fifo")
    for name in ("one", "two", "three"):
        (job / name).hardlink_to(job / "own")
    assert MIB <= measured(job) < 1.1 * MIB
    assert measured(job / "up") == 0
    assert measured(job / "missing", job / "own") == 0  # none of them is a folder


def test_any_depth_with_one_descriptor(tmp_path: Path) -> None:
    script = "import os\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('f', 'wb').write(b'x' * (1 << 20))"
    subprocess.run(["python3", "-c", script], cwd=tmp_path, check=True)
    before = len(os.listdir("/proc/self/fd"))
    walk = Walk([tmp_path])
    assert walk.go(1500) == 0
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert walk.go(10_000) > 0
    assert walk.bytes > MIB
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_folder_that_is_replaced_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    """Moved away while the walk is inside: the way up would lead to another place."""
    other = tmp_path / "other"
    write(other / "large", 8 * MIB)
    job = tmp_path / "job"
    for name in ("a", "b"):
        write(job / name / "x" / "f", 1000)
    walk = Walk([job])
    walk.go(3)  # a and b of the job, then what is in one of them
    for name in ("a", "b"):
        (job / name).rename(other / name)
        (job / name).symlink_to(other)
    while not walk.go(1):
        pass
    assert walk.bytes < MIB
    shutil.rmtree(other)
