"""Groups on folders that look like the kernel's; on the kernel itself in tests/integration/test_local_limits.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.engines.local.cgroups import Cgroups, find_bases, members, quota


def kernel(tmp_path: Path, groups: str, mounts: str) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    (proc / "mountinfo").write_text(mounts.replace("TMP", str(tmp_path)))
    return proc


V1 = "5:cpu,cpuacct:/a\n4:memory:/a/b\n3:pids:/\n1:name=systemd:/x\n0::/u\n"
V1_MOUNTS = """30 20 0:1 / TMP/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct
31 20 0:2 / TMP/me\\040mory rw - cgroup cgroup rw,memory
32 20 0:3 / TMP/pids rw - cgroup cgroup rw,pids
33 20 0:4 / TMP/unified rw - cgroup2 cgroup2 rw
1 0 8:1 / / rw - ext4 /dev/sda rw
"""


def test_version_1_bases_are_below_our_own_groups(tmp_path: Path) -> None:
    assert find_bases(kernel(tmp_path, V1, V1_MOUNTS)) == {
        "cpu": tmp_path / "cpu/a",
        "memory": tmp_path / "me mory/a/b",
        "pids": tmp_path / "pids",
        "freezer": tmp_path / "unified/u",
    }


def test_the_group_that_freezes_is_made_when_it_is_needed(tmp_path: Path) -> None:
    for name in ("pids", "unified"):
        (tmp_path / name).mkdir()
    group = Cgroups({"pids": tmp_path / "pids", "freezer": tmp_path / "unified"}, tmp_path / "data").make("t", 0, 0)
    assert group.freezer == group.folders[-1]
    assert group.folders[-2] == f"{group.freezer}/turn"  # it can be removed before the group it is in
    assert [Path(folder).exists() for folder in group.folders] == [True, False, False]


def test_a_container_sees_its_own_part_only(tmp_path: Path) -> None:
    mounts = "31 20 0:2 /docker/7 TMP/memory rw - cgroup cgroup rw,memory\n"
    assert find_bases(kernel(tmp_path, "4:memory:/docker/7/in\n", mounts)) == {"memory": tmp_path / "memory/in"}


V2_MOUNTS = "33 20 0:4 / TMP/cg rw - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize("base", ["s/skep", "s", "."])
def test_version_2_takes_the_nearest_group_that_may_have_limits(tmp_path: Path, base: str) -> None:
    own = tmp_path / "cg" / "s" / "skep"
    own.mkdir(parents=True)
    for folder in (own, own.parent, own.parent.parent):
        # Readable, and never writable, not even for root: as the kernel's is for a group with processes.
        (folder / "cgroup.subtree_control").symlink_to("/proc/self/cmdline")
    able = tmp_path / "cg" / base / "cgroup.subtree_control"
    able.unlink()
    able.write_text("cpu memory pids")
    assert find_bases(kernel(tmp_path, "0::/s/skep\n", V2_MOUNTS)) == {"unified": tmp_path / "cg" / base}


def test_version_2_without_any_group_for_us(tmp_path: Path) -> None:
    (tmp_path / "cg").mkdir()
    (tmp_path / "cg" / "cgroup.subtree_control").symlink_to("/proc/self/cmdline")
    assert find_bases(kernel(tmp_path, "0::/\n", V2_MOUNTS)) == {}


def test_no_groups_at_all(tmp_path: Path) -> None:
    assert find_bases(tmp_path) == {}
    assert Cgroups({}, tmp_path).problem() == (
        "cpu and memory of tasks cannot be limited here: no control group may be made"
    )
    assert Cgroups({}, tmp_path).make("t", 1, 1).folders == []


def test_limits_of_version_1(tmp_path: Path) -> None:
    for name in ("memory", "cpu", "pids"):
        (tmp_path / name).mkdir()
    groups = Cgroups({name: tmp_path / name for name in ("memory", "cpu", "pids")}, tmp_path / "data")
    assert groups.problem() is None
    group = groups.make("1.1.w-0", 1.5, 0.5, 100)
    memory, cpu, pids = map(Path, group.folders)
    assert (memory / "memory.limit_in_bytes").read_text() == str(512 << 20)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
    assert pids == tmp_path / "pids" / f"{groups.mark}.1.1.w-0"
    assert (pids / "pids.max").read_text() == "100"
    assert group.oom_file == str(memory / "memory.oom_control")
    assert groups.make("2", 0, 0).folders == [str(tmp_path / "pids" / f"{groups.mark}.2")]
    assert len(Path(groups.make("x" * 1000, 0, 0).folders[-1]).name) <= 255


def test_limits_of_version_2(tmp_path: Path) -> None:
    groups = Cgroups({"unified": tmp_path}, tmp_path / "data")
    assert groups.problem() is None
    group = groups.make("t", 0.5, 1, 100)
    folder = Path(group.folders[-1])
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert (folder / "pids.max").read_text() == "100"
    assert group.oom_file == str(folder / "memory.events")


def test_two_servers_do_not_share_groups(tmp_path: Path) -> None:
    assert Cgroups({}, tmp_path / "a").mark != Cgroups({}, tmp_path / "b").mark


def test_members(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("12\n13\n")
    assert members([str(tmp_path), str(tmp_path / "gone")]) == {12, 13}


def test_the_kernel_takes_no_tiny_quota() -> None:
    assert quota(0.001) == 1000
