"""The speeds that a cluster file declares for virtual GPUs, as a profile."""

from __future__ import annotations

from skep.core.cluster import Cluster
from skep.profiles.native import NOTHING, NativeProfile


def declared_profile(cluster: Cluster) -> NativeProfile | None:
    """None if the file declares none. The reference is the fastest type, the first of several."""
    specs = [pool.nodes[0].spec for pool in cluster.pools if pool.nodes]
    models = dict.fromkeys(model for spec in specs for model, _ in spec.speeds)
    if not models:
        return None
    factors = {
        model: NOTHING._replace(types={spec.gpu_type: spec.speed_of(model) for spec in specs}) for model in models
    }
    default = NOTHING._replace(types={spec.gpu_type: spec.speed_of("") for spec in specs})
    reference = max(specs, key=lambda spec: spec.speed_of(""))
    return NativeProfile(reference.gpu_type, default, {model: each for model, each in factors.items() if model})
