"""What an engine cannot do is refused when a job is submitted."""

from __future__ import annotations

import pytest

from skep.clusters.read import read_text
from skep.core.errors import InputError
from skep.core.ports import Capability
from skep.jobs.request import OfShare, Request, TaskRole
from skep.service.beyond import refuse_beyond

ALL = frozenset(Capability)
WHOLE = TaskRole(gpus=1, command="true")
SHARED = """
nodes: [{count: 3, name: a, gpus: 8, gpu_type: v100, switch: 4}]
vcs: {small: 1 switch, large: 1 node, own: {pinned: [a2/0]}}
"""


@pytest.mark.parametrize(
    ("lacks", "request_", "said"),
    [
        (Capability.IMAGES, Request("j", {"a": TaskRole(image="x:1", command="true")}), "role a names an image"),
        (Capability.SHARE, Request("j", {"a": TaskRole(gpus=1, gpu_milli=500, command="true")}), "cannot share GPUs"),
        (Capability.SHARE, Request("j", {"a": WHOLE}, share=OfShare("pack")), "cannot share GPUs"),
        (Capability.SUSPEND, Request("j", {"a": WHOLE}, checkpoint="criu"), "cannot suspend processes"),
    ],
    ids=["image", "part of a GPU", "share mode", "criu"],
)
def test_what_is_not_offered_is_refused(lacks: Capability, request_: Request, said: str) -> None:
    refuse_beyond(request_, ALL, None)
    refuse_beyond(Request("j", {"a": WHOLE}), ALL - {lacks}, None)
    with pytest.raises(InputError, match=said):
        refuse_beyond(request_, ALL - {lacks}, None)


@pytest.mark.parametrize(("vc", "is_refused"), [("small", True), ("large", False), ("own", True), ("unknown", False)])
def test_cells_smaller_than_a_node_need_exact_gpus(vc: str, is_refused: bool) -> None:
    layout = read_text(SHARED, "shared")[1]
    request = Request("j", {"a": WHOLE}, vc=vc)
    refuse_beyond(request, ALL, layout)
    if not is_refused:
        refuse_beyond(request, ALL - {Capability.EXACT_GPUS}, layout)
        return
    with pytest.raises(InputError, match=f"VC {vc} owns .* smaller than a node"):
        refuse_beyond(request, ALL - {Capability.EXACT_GPUS}, layout)
