"""A shared cluster for a simulation: its virtual clusters, and the hardware behind them."""

from __future__ import annotations

from skep.clusters.read import read_cluster, read_layout
from skep.clusters.spec import looks_like_spec
from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware, cluster_of
from skep.core.cells.layout import Layout
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import InputError, did_you_mean
from skep.policies.shared.cell_books import cell_books
from skep.policies.shared.vc import PRIVATE
from skep.traces.trace import Trace


def read_shared(spec: str) -> tuple[Cluster, Layout | None]:
    """The cluster, and its layout if it has virtual clusters."""
    layout = None if looks_like_spec(spec) else read_layout(spec)
    if layout is not None and layout.vcs:
        return cluster_of(layout), layout
    return read_cluster(spec), None


def hardware_cluster(layout: Layout, sharing: str = "") -> Cluster:
    """The nodes; with private clusters, those that the VCs would own."""
    if sharing != PRIVATE:
        return cluster_of(layout)
    cells = Cells(layout)
    hardware = Hardware(cells)
    specs: list[NodeSpec] = []
    for vc in layout.vcs.values():
        specs += [spec for part in cell_books(vc, cells, hardware, {}) for spec in part.cluster.specs]
    return Cluster(specs, layout.name)


def check_vcs(trace: Trace, layout: Layout) -> None:
    """Check that every VC of the trace is one of the cluster."""
    for name in sorted({job.spec.vc for job in trace.jobs}):
        if name not in layout.vcs:
            hint = did_you_mean(name, layout.vcs) or f"it has {', '.join(list(layout.vcs)[:20])}; --vc-map {name}=…"
            raise InputError(f"the cluster has no virtual cluster '{name}', which the trace names", hint=hint)
