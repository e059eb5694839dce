"""The gpus of this machine, through NVIDIA's library. Where there is none, the cluster file declares virtual ones."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    index: int
    """As `CUDA_VISIBLE_DEVICES` counts them when `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`."""
    name: str
    uuid: str
    memory_mib: int


def find_gpus() -> list[Gpu]:
    """Nothing where the library, the driver or the gpus are missing: that is no error on a laptop."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(index, text(nvml.nvmlDeviceGetName(handle)), text(nvml.nvmlDeviceGetUUID(handle)), memory.total >> 20)


def text(value: str | bytes) -> str:
    """Older versions of the library answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
