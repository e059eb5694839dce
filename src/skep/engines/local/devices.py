"""What the hardware offers for jobs that share a GPU: MIG instances and NVIDIA MPS, or one line that says why not."""

from __future__ import annotations

import os

from skep.core.errors import InputError
from skep.core.share import MIG_PROFILES
from skep.engines.local.gpus import find_gpus, find_mig_instances

PIPES = "/tmp/nvidia-mps"
"""Where MPS clients find the daemon, unless the environment says otherwise."""


def mig_devices(gpus: tuple[int, ...], milli: int, slot: int) -> tuple[str, ...]:
    """The MIG instances of a task. None on a machine without GPUs, whose GPUs are virtual."""
    if not find_gpus():
        return ()
    profile = next(each for each in MIG_PROFILES.values() if each.milli == milli)
    found = {(each.gpu, each.start): each for each in find_mig_instances()}
    names = []
    for gpu in gpus:
        instance = found.get((gpu, slot))
        if instance is None or instance.size != profile.memory:
            has = ", ".join(f"{each.size} eighths from {each.start}" for each in found.values() if each.gpu == gpu)
            raise InputError(
                f"GPU {gpu} has no MIG instance {profile.name} at slot {slot} (it has {has or 'none'})",
                hint="make it with nvidia-smi mig -cgi",
            )
        names.append(instance.uuid)
    return tuple(names)


def mps_problem() -> str | None:
    """Why the thread percentage of a job in mode `mps` has no effect here; None: it has."""
    if not find_gpus():
        return "mode mps: this machine has no GPU; the job shares a virtual one without a bound"
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", PIPES)
    if not os.path.exists(f"{pipes}/control"):
        return "mode mps: no MPS daemon runs here, so nothing bounds the job (nvidia-cuda-mps-control -d starts one)"
    return None
