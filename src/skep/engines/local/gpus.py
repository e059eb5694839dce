"""The GPUs of this machine, through NVIDIA's library. Without any, the cluster file declares virtual ones."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Gpu(msgspec.Struct, frozen=True):
    index: int
    """As `CUDA_VISIBLE_DEVICES` numbers them if `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`."""
    name: str
    uuid: str
    memory_mib: int


class GpuReading(msgspec.Struct, frozen=True):
    """Current values of a GPU from the driver; None if the driver does not provide one."""

    index: int
    utilization: float | None
    """Percent."""
    memory_used_mib: int | None
    memory_total_mib: int | None
    temperature_c: float | None
    power_w: float | None
    errors: int | None
    """Uncorrected memory errors since the driver was loaded."""


class MigInstance(msgspec.Struct, frozen=True):
    """A hardware-isolated part of a GPU."""

    gpu: int
    start: int
    """The first of the eighths of the GPU's memory that it has."""
    size: int
    uuid: str
    """As `CUDA_VISIBLE_DEVICES` names it."""


def find_gpus() -> list[Gpu]:
    """Empty if the library, the driver or the GPUs are missing, which is not an error."""
    return _of_each(_gpu)


def read_gpus() -> list[GpuReading]:
    return _of_each(_reading)


def find_mig_instances() -> list[MigInstance]:
    """Empty if MIG is off, or the driver does not support it."""
    return [each for found in _of_each(_mig_instances) for each in found]


def _of_each(ask: Callable[[Any, int], T]) -> list[T]:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [ask(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _reading(nvml: Any, index: int) -> GpuReading:
    """Not every GPU provides every value."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def said(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (nvml.NVMLError, AttributeError):
            return None

    memory = said(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return GpuReading(
        index,
        utilization=said(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        memory_used_mib=said(lambda: memory.used >> 20),
        memory_total_mib=said(lambda: memory.total >> 20),
        temperature_c=said(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        power_w=said(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        errors=said(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        ),
    )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(index, text(nvml.nvmlDeviceGetName(handle)), text(nvml.nvmlDeviceGetUUID(handle)), memory.total >> 20)


def _mig_instances(nvml: Any, index: int) -> list[MigInstance]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    found = []
    try:
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(nvml.NVMLError):  # Not every number has an instance.
                device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                instance = nvml.nvmlDeviceGetGpuInstanceById(handle, nvml.nvmlDeviceGetGpuInstanceId(device))
                where = nvml.nvmlGpuInstanceGetInfo(instance).placement
                found.append(MigInstance(index, where.start, where.size, text(nvml.nvmlDeviceGetUUID(device))))
    except (nvml.NVMLError, AttributeError):
        return []
    return found


def text(value: str | bytes) -> str:
    """Older versions of the library answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
