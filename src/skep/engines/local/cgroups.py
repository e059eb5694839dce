"""Limits of CPU and memory by the kernel's control groups, version 1 and 2, if groups may be created.

A task's group is also used to find its processes if its shim was killed. Groups are created below the server's own, so
that a limit on the server applies to its tasks too. In version 2 a group with processes cannot have groups with limits
below it, so the nearest group above that may have them is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.engines.local.folder import safe_name
from skep.engines.local.processes import TURN, send

PERIOD_US = 100_000
UNESCAPED = {"\\040": " ", "\\011": "\t", "\\134": "\\"}
WANTED_V2 = ("cpu", "memory")


class ControlGroup(msgspec.Struct, frozen=True):
    """The folders of a task's processes, and the file that counts out-of-memory kills."""

    folders: list[str] = []
    oom_file: str = ""
    freezer: str = ""
    """The control group that can be frozen. With version 1 it is created when it is needed."""


class Cgroups:
    """`bases`: by controller, the folder where groups may be created; version 2 has one for all, called ``unified``, or
    beside version 1 one without limits, called ``freezer``."""

    def __init__(self, bases: dict[str, Path], owner: Path) -> None:
        self.mark = f"skep-{hashlib.sha256(os.fsencode(owner.absolute())).hexdigest()[:12]}"
        """Two servers on one machine must not use the same group."""
        self.bases: dict[str, Path] = {}
        for controller, base in bases.items():
            with contextlib.suppress(OSError):
                made(base / self.mark).rmdir()  # A trial.
                self.bases[controller] = base

    def problem(self) -> str | None:
        """What cannot be limited here, in one line."""
        if "unified" in self.bases:
            return None
        missing = [name for name in ("cpu", "memory") if name not in self.bases]
        return (
            f"{' and '.join(missing)} of tasks cannot be limited here: no control group may be made"
            if missing
            else None
        )

    def make(self, name: str, cpu: float, memory_gib: float, processes: int = 0) -> ControlGroup:
        """A group for one task; 0: no limit."""
        name = safe_name(f"{self.mark}.{name}")
        if "unified" in self.bases:
            return self._make_v2(name, cpu, int(memory_gib * (1 << 30)), processes)
        return self._make_v1(name, cpu, int(memory_gib * (1 << 30)), processes)

    def _make_v1(self, name: str, cpu: float, memory: int, processes: int) -> ControlGroup:
        wanted = [key for key, limit in (("memory", memory), ("cpu", cpu), ("pids", True)) if limit]
        folders = {key: made(self.bases[key] / name) for key in wanted if key in self.bases}
        if "memory" in folders:
            put(folders["memory"] / "memory.limit_in_bytes", memory)
            put(folders["memory"] / "memory.memsw.limit_in_bytes", memory)
        if "cpu" in folders:
            put(folders["cpu"] / "cpu.cfs_period_us", PERIOD_US)
            put(folders["cpu"] / "cpu.cfs_quota_us", quota(cpu))
        if "pids" in folders and processes:
            put(folders["pids"] / "pids.max", processes)
        oom_file = str(folders["memory"] / "memory.oom_control") if "memory" in folders else ""
        freezer = [str(self.bases["freezer"] / name)] if "freezer" in self.bases else []
        return ControlGroup([*map(str, folders.values()), *within(freezer)], oom_file, "".join(freezer))

    def _make_v2(self, name: str, cpu: float, memory: int, processes: int) -> ControlGroup:
        folder = made(self.bases["unified"] / name)
        if memory:
            put(folder / "memory.max", memory)
            put(folder / "memory.swap.max", 0)
        if processes:
            put(folder / "pids.max", processes)
        if cpu:
            put(folder / "cpu.max", f"{quota(cpu)} {PERIOD_US}")
        return ControlGroup(within([str(folder)]), str(folder / "memory.events") if memory else "", str(folder))


def within(folders: list[str]) -> list[str]:
    """These groups, after the groups for turns inside them, because groups are removed from the inside out."""
    return [f"{folder}/{TURN}" for folder in folders] + folders


def quota(cpu: float) -> int:
    """Microseconds of CPU in each period; the kernel's minimum is 1000."""
    return max(int(cpu * PERIOD_US), 1000)


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def put(file: Path, value: object) -> None:
    """A limit that this kernel does not support is left out."""
    with contextlib.suppress(OSError):
        file.write_text(str(value))


def enable(folder: Path) -> bool:
    """Let the groups below this one have limits."""
    put(folder / "cgroup.subtree_control", "+pids")
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in WANTED_V2))
        return set(WANTED_V2) <= set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return False


def members(folders: list[str]) -> set[int]:
    """The processes in these groups."""
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(int(line) for line in Path(folder, "cgroup.procs").read_text().split())
    return found


def stop_forks(folders: list[str]) -> None:
    """Prevent processes in these groups from forking, so that killed ones are not replaced."""
    for folder in folders:
        put(Path(folder, "pids.max"), 0)


def kill_members(folders: list[str]) -> bool:
    """Kill the processes in these groups. True if there were any."""
    found = members(folders)
    for pid in found:
        send(pid, signal.SIGKILL)
    return bool(found)


def find_bases(proc: Path = Path("/proc/self")) -> dict[str, Path]:
    """Where our groups belong, by controller; empty if the kernel has no groups or hides them."""
    try:
        own = dict(_own_groups((proc / "cgroup").read_text()))
        mounts = list(_mounts((proc / "mountinfo").read_text()))
    except OSError:
        return {}
    found: dict[str, Path] = {}
    for controller in ("memory", "cpu", "pids"):
        for point, root, options in mounts:
            if controller in options and controller in own:
                found[controller] = _below(point, root, own[controller])
    for point, root, options in mounts:
        if "unified" in options and "unified" in own:
            base = _below(point, root, own["unified"])
            if found:
                return found | {"freezer": base}  # The limits are in groups of version 1, and this one has none.
            nearest = _nearest_v2(base, point)
            return {"unified": nearest} if nearest is not None else {}
    return found


def own_groups(proc: Path = Path("/proc/self")) -> list[str]:
    """The groups of this process, one of each hierarchy."""
    try:
        own = dict(_own_groups((proc / "cgroup").read_text()))
        mounts = list(_mounts((proc / "mountinfo").read_text()))
    except OSError:
        return []
    found = []
    for point, root, options in mounts:
        if controller := next((each for each in options if each in own), ""):
            found.append(str(_below(point, root, own[controller])))
    return found


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else ["unified"] * (number == "0"):
            yield controller, path


def _mounts(text: str) -> Iterator[tuple[Path, str, set[str]]]:
    """Mount point, root within the file system, and the controllers it has."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = before.split()[3:5]
            for escape, character in UNESCAPED.items():
                point = point.replace(escape, character)
            yield Path(point), root, {"unified"} if kind == "cgroup2" else set(options.split(","))


def _below(point: Path, root: str, own: str) -> Path:
    """In a container the mount may show only a part of the tree, in which we are the root."""
    shown = own.removeprefix(root.rstrip("/")) if own.startswith(root) else "/"
    return point / shown.lstrip("/")


def _nearest_v2(own: Path, top: Path) -> Path | None:
    for folder in [own, *own.parents]:
        try:
            enabled = set((folder / "cgroup.subtree_control").read_text().split())
        except OSError:
            return None
        if set(WANTED_V2) <= enabled or enable(folder):
            return folder
        if folder == top:
            return None
    return None
