"""What an admin sets about the cluster."""

from __future__ import annotations

from typing import Any

import msgspec

PLUGIN, VISIBLE = "plugin", "visible"
GPU_MODES = (PLUGIN, VISIBLE)
"""`plugin`: the device plugin chooses the devices. `visible`: exact GPUs by `NVIDIA_VISIBLE_DEVICES`; the GPUs of the
nodes then belong to Skep alone."""


class KubeSettings(msgspec.Struct, frozen=True):
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    gpus: str = PLUGIN
    image: str = ""
    """Of tasks that name none."""
    pull_secrets: tuple[str, ...] = ()
    checkpoints: dict[str, Any] | None = None
    """The volume, as in a pod, for `SKEP_CHECKPOINT_DIR`; None: checkpoints end with their pod."""
    reports: str = ""
    """The address at which pods report to this server; empty: they do not."""
    unreachable_s: float = 300.0
    """A node that is not ready for this time is lost."""
