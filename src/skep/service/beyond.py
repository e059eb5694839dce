"""What a job asks for and its engine cannot do: it is refused when it is submitted, with the reason."""

from __future__ import annotations

from skep.core.cells.layout import CellSpec, Layout
from skep.core.cluster import WHOLE
from skep.core.errors import InputError
from skep.core.ports import Capability
from skep.jobs.request import Request


def refuse_beyond(request: Request, capabilities: frozenset[Capability], layout: Layout | None) -> None:
    lacks = frozenset(Capability) - capabilities
    if not lacks:
        return
    for name, role in request.tasks.items():
        if role.image and Capability.IMAGES in lacks:
            problem = f"job {request.name}: role {name} names an image, but this engine runs no images"
            raise InputError(problem, hint="on one machine they need podman, which was not found")
        if (request.share is not None or role.gpu_milli < WHOLE) and Capability.SHARE in lacks:
            problem = f"job {request.name}: role {name} asks for a part of a GPU, but this engine cannot share GPUs"
            raise InputError(problem, hint="request whole GPUs")
    if request.checkpoint == "criu" and Capability.SUSPEND in lacks:
        problem = f"job {request.name}: checkpoint is criu, but this engine cannot suspend processes"
        raise InputError(problem, hint="let the job save itself: checkpoint: signal")
    if Capability.EXACT_GPUS in lacks and layout is not None and request.vc in layout.vcs:
        refuse_small_cells(request, layout)


def refuse_small_cells(request: Request, layout: Layout) -> None:
    """A VC that owns cells smaller than a node needs an engine that gives exact GPUs."""
    vc = layout.vcs[request.vc]
    pinned = {cell.type for cell in all_cells(layout) if cell.pinned in vc.pinned}
    for name in sorted({*pinned, *(grant.type for grant in vc.grants)}):
        if not has_nodes(layout, name):
            problem = f"job {request.name}: VC {request.vc} owns {name} cells, which are smaller than a node"
            raise InputError(f"{problem}, but this engine cannot give exact GPUs", hint="give the VC whole nodes")


def all_cells(layout: Layout) -> list[CellSpec]:
    found = list(layout.cells)
    for cell in found:  # it grows in the loop
        found += cell.children
    return found


def has_nodes(layout: Layout, name: str) -> bool:
    """True if a cell of this type is a node or contains nodes."""
    kind = layout.types.get(name)
    return kind is not None and (kind.is_node or has_nodes(layout, kind.child))
