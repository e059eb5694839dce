"""The GPU memory limit of a job on a shared GPU, enforced by torch."""

from __future__ import annotations

import os
import sys

from skep.train.checkpoints import warn


def bound_gpu_memory() -> None:
    """Limit this process to the memory that the scheduler has booked for it on each of its GPUs (`SKEP_GPU_MEM_MIB`).

    torch then raises its out-of-memory error in this process instead of in a neighbour. Only if the script has imported
    torch; a script that does so later is not limited.
    """
    asked = os.environ.get("SKEP_GPU_MEM_MIB", "")
    torch = sys.modules.get("torch")
    if not asked.isdecimal() or torch is None or not torch.cuda.is_available():
        return
    for device in range(torch.cuda.device_count()):
        total_mib = torch.cuda.get_device_properties(device).total_memory / (1 << 20)
        if int(asked) > total_mib:
            warn(f"GPU {device} has {total_mib:.0f} MiB, less than the {asked} MiB that this job asked for")
        torch.cuda.set_per_process_memory_fraction(min(int(asked) / total_mib, 1.0), device)
