from __future__ import annotations

import sys
import types

import pytest

from skep.train.memory import bound_gpu_memory


def torch_with(gpus: int, gib: int, fractions: dict[int, float]) -> types.SimpleNamespace:
    """As far as `bound_gpu_memory` asks it."""
    properties = types.SimpleNamespace(total_memory=gib << 30)
    cuda = types.SimpleNamespace(
        is_available=lambda: gpus > 0,
        device_count=lambda: gpus,
        get_device_properties=lambda device: properties,
        set_per_process_memory_fraction=lambda fraction, device: fractions.update({device: fraction}),
    )
    return types.SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ("gpus", "asked", "expected"),
    [
        (2, "4096", {0: 0.25, 1: 0.25}),
        (1, "99999999", {0: 1.0}),
        (1, "", {}),
        (1, "much", {}),
        (0, "4096", {}),
    ],
)
def test_each_gpu_is_bound(monkeypatch: pytest.MonkeyPatch, gpus: int, asked: str, expected: dict[int, float]) -> None:
    fractions: dict[int, float] = {}
    monkeypatch.setitem(sys.modules, "torch", torch_with(gpus, 16, fractions))
    monkeypatch.setenv("SKEP_GPU_MEM_MIB", asked)
    bound_gpu_memory()
    assert fractions == expected


def test_without_torch_there_is_nothing_to_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("SKEP_GPU_MEM_MIB", "4096")
    bound_gpu_memory()
    assert "torch" not in sys.modules
