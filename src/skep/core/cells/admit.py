"""Can a gang ever fit? Asked once, when a job is submitted, so that nobody waits for what cannot happen.

The question is put to the cells as if all were free and healthy: those of the VC for guaranteed work, the pinned cell
if one is named, all of a chain for opportunistic work. A gang sits in one chain, so it is refused only if every chain
it may use is too small for it.
"""

from __future__ import annotations

from skep.core.cells.cells import Cells
from skep.core.cells.gangs import Request
from skep.core.cells.placement import SEARCH_PODS, seat_gang
from skep.core.cells.tree import GUARANTEED_MAX, OPPORTUNISTIC, View

BEYOND_ALL = GUARANTEED_MAX + 1
"""At this priority all that is in use counts as free."""


def never_fits(cells: Cells, request: Request) -> str:
    """Why the gang can never fit, empty if it can; raises `InputError` for what `Cells.check` refuses.

    Depends only on the layout and on (vc, pods, gpu type, pinned, whether opportunistic): keep the answer per these.
    """
    cells.check(request)
    reasons = []
    for owner, view in views_for(cells, request):
        reason = misfit(request, view, owner)
        if not reason:
            return ""
        reasons.append((request.gpu_count > view.gpu_count, reason))
    if not reasons:
        return f"VC {request.vc} owns no cells that were not pinned; only opportunistic work can run there"
    # Of several chains the one that comes closest says most: it has enough gpus, if any has.
    return min(reasons, key=lambda found: found[0])[1]


def views_for(cells: Cells, request: Request) -> list[tuple[str, View]]:
    """What it may use: (in words, the nodes)."""
    if request.pinned:
        return [(f"the pinned cell {request.pinned}", cells.tenancies[request.vc].views[f"pinned/{request.pinned}"])]
    chains = cells.chains_for(request)
    if request.priority == OPPORTUNISTIC:
        return [(f"the cluster's {chain.name}", chain.view) for chain in chains]
    views = cells.tenancies[request.vc].views
    return [(f"VC {request.vc}", views[chain.name]) for chain in chains]


def misfit(request: Request, view: View, owner: str) -> str:
    """The plainest reason why the gang does not fit these nodes when they are empty."""
    largest = max((node.leaf_count for node in view.nodes), default=0)
    if max(request.pods) > largest:
        return f"a pod needs {max(request.pods)} gpus, the largest node of {owner} has {largest}"
    if request.gpu_count > view.gpu_count:
        return f"the gang needs {request.gpu_count} gpus, {owner} has {view.gpu_count}"
    for size in sorted(request.pods, reverse=True):
        # A node has room for so many pods of this size or more; those smaller than it are left aside.
        room = sum(node.leaf_count // size for node in view.nodes)
        wanted = sum(count for other, count in request.pods.items() if other >= size)
        if wanted > room:
            pods = f"{wanted} pods of {size}{' or more' if size < max(request.pods) else ''} gpus"
            return f"the gang has {pods}, the nodes of {owner} have room for {room}"
    sizes = request.sizes
    is_known = len(request.pods) == 1 or len(sizes) <= SEARCH_PODS
    if is_known and seat_gang(view.nodes, sizes, BEYOND_ALL, lambda node: True) is None:
        return f"the pods of the gang cannot be packed onto the nodes of {owner}"
    return ""
