"""MIG instances and MPS, as far as they can be told without the hardware: the library is a fake."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from test_local_gpus import NVMLError, library

from skep.core.cluster import Allocation, Slice
from skep.core.errors import InputError
from skep.engines.local.begin import mig_devices, mps_problem, place_tasks, share_notes
from skep.jobs.env import Folders, TaskPlace, task_env
from skep.jobs.request import Request, TaskRole

ONE_G = 142
"""Milli of a seventh."""


def with_mig(starts: list[int]) -> types.ModuleType:
    """One GPU with instances of one eighth of its memory, from these eighths on."""
    module = library(1)

    def device(handle: int, number: int) -> int:
        if number >= len(starts):
            raise NVMLError("not found")
        return 100 + number

    def uuid(handle: int) -> str:
        return f"GPU-{handle}" if handle < 100 else f"MIG-{starts[handle - 100]}"

    vars(module).update(
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=device,
        nvmlDeviceGetGpuInstanceId=lambda handle: handle - 100,
        nvmlDeviceGetGpuInstanceById=lambda handle, number: number,
        nvmlGpuInstanceGetInfo=lambda number: types.SimpleNamespace(
            placement=types.SimpleNamespace(start=starts[number], size=1)
        ),
        nvmlDeviceGetUUID=uuid,
    )
    return module


def test_a_mig_instance_is_found_by_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", with_mig([0, 3]))
    assert mig_devices((0,), ONE_G, 3) == ("MIG-3",)


def test_a_mig_instance_that_is_not_there_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", with_mig([0]))
    with pytest.raises(InputError, match=r"GPU 0 has no MIG instance 1g at slot 3 \(it has 1 eighths from 0\)"):
        mig_devices((0,), ONE_G, 3)


def test_a_gpu_without_mig_has_no_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(1))
    with pytest.raises(InputError, match="it has none"):
        mig_devices((0,), ONE_G, 0)


def test_virtual_gpus_have_no_devices_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert mig_devices((0,), ONE_G, 0) == ()
    assert "no GPU" in (mps_problem() or "")


def test_mps_needs_its_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(1))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert "no MPS daemon" in (mps_problem() or "")
    (tmp_path / "control").touch()
    assert mps_problem() is None


def placed(piece: Slice) -> TaskPlace:
    request = Request("job", {"main": TaskRole(count=piece.tasks)})
    return place_tasks(request, None, Allocation((piece,), 1), {0: "n0"})[0]


def env_of(place: TaskPlace) -> dict[str, str]:
    request = Request("job", {"main": TaskRole()})
    return task_env(request, "1", 1, [place], 0, [{"master": [1234]}], Folders("t", "c"))


def test_a_job_in_mode_mps_is_told_its_part_of_threads_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    place = placed(Slice(0, 0b11, 250, gpu_mem_mib=2048, mode="mps", limit=250))
    env = env_of(place)
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2048M,1=2048M"
    assert env["SKEP_GPU_MEM_MIB"] == "2048"
    assert len(share_notes(place)) == 1


def test_tasks_on_one_gpu_divide_its_memory() -> None:
    assert placed(Slice(0, 0b1, 500, gpu_mem_mib=4096, tasks=4)).gpu_mem_mib == 1024
    assert placed(Slice(0, 0b11, 1000, gpu_mem_mib=4096, tasks=2)).gpu_mem_mib == 4096


def test_a_mig_instance_is_all_that_a_job_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", with_mig([0, 3]))
    env = env_of(placed(Slice(0, 0b1, ONE_G, mode="mig", slot=3, limit=ONE_G)))
    assert env["CUDA_VISIBLE_DEVICES"] == "MIG-3"
