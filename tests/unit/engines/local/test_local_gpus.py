from __future__ import annotations

import sys
import types

import pytest

from skep.engines.local.gpus import Gpu, GpuReading, find_gpus, read_gpus


class NVMLError(Exception):
    pass


def library(count: int, *, is_broken: bool = False) -> types.ModuleType:
    """What nvidia-ml-py looks like on a machine with so many gpus."""
    module = types.ModuleType("pynvml")

    def init() -> None:
        if is_broken:
            raise NVMLError("driver not loaded")

    vars(module).update(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: f"gpu {index}".encode(),
        nvmlDeviceGetUUID=lambda index: f"GPU-{index}",
        nvmlDeviceGetMemoryInfo=lambda index: types.SimpleNamespace(total=16 << 30),
    )
    return module


def test_gpus_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(2))
    assert find_gpus() == [Gpu(0, "gpu 0", "GPU-0", 16384), Gpu(1, "gpu 1", "GPU-1", 16384)]


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(2, is_broken=True))
    assert find_gpus() == []


def test_no_library_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpus() == []


def test_what_a_gpu_cannot_say_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> float:
        raise NVMLError("not supported")

    module = library(1)
    vars(module).update(
        nvmlDeviceGetMemoryInfo=lambda index: types.SimpleNamespace(total=16 << 30, used=2 << 30),
        nvmlDeviceGetUtilizationRates=lambda index: types.SimpleNamespace(gpu=97),
        nvmlDeviceGetTemperature=lambda index, sensor: 61,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetPowerUsage=refused,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert read_gpus() == [GpuReading(0, 97.0, 2048, 16384, 61.0, None, None)]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_gpus() == []
