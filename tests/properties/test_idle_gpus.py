"""Idle GPUs and fragments of a cluster against a naive twin that looks at every node each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec, Slice
from skep.core.errors import InvariantBroken
from skep.core.fragments import Fragments, Typical, typical_tasks
from skep.core.model import gpu_shape
from skep.metrics.fragments import IdleGpus


def naive(cluster: Cluster, typical: Typical) -> tuple[int, int]:
    up = [node for node in cluster.nodes if node.is_up]
    idle = sum(node.milli_left(gpu) for node in up for gpu in range(node.gpu_count))
    return idle, sum(map(Fragments(typical).of_node, up))


SHAPES = st.builds(
    lambda gpus, milli, cpu: gpu_shape(gpus, gpu_milli=milli, cpu=cpu),
    st.integers(0, 4),
    st.sampled_from([1000, 1000, 500]),
    st.sampled_from([0.0, 2.0]),
).filter(lambda shape: shape.gpus or shape.roles[0].cpu)


@given(data=st.data(), shapes=st.lists(SHAPES, min_size=1, max_size=8), has_cpus=st.booleans(), shares=st.booleans())
def test_what_is_kept_is_what_a_look_at_all_nodes_gives(
    data: st.DataObject, shapes: list[object], has_cpus: bool, shares: bool
) -> None:
    more = {"cpu_milli": 8000} if has_cpus else {}
    cluster = Cluster([NodeSpec(f"n{at}", 1 + at % 4, "ab"[at % 2], **more) for at in range(6)])
    typical = typical_tasks(shapes, 4)  # type: ignore[arg-type]
    watched = IdleGpus(cluster, typical)
    held: list[Allocation] = []
    for _ in range(data.draw(st.integers(0, 12))):
        step = data.draw(st.sampled_from(["take", "take", "give", "lose", "restore", "look"]))
        node = cluster.nodes[data.draw(st.integers(0, 5))]
        if step == "take" and node.is_up:
            milli = data.draw(st.sampled_from([500, 300] if shares else [WHOLE]))
            mask = data.draw(st.integers(1, (1 << node.gpu_count) - 1))
            piece = Allocation((Slice(node.index, mask, milli=milli, cpu_milli=1000),), 0)
            try:
                cluster.take(piece)
            except InvariantBroken:
                continue
            held.append(piece)
        elif step == "give" and held:
            cluster.give(held.pop(data.draw(st.integers(0, len(held) - 1))))
        elif step == "lose":
            cluster.lose(node)
        elif step == "restore":
            cluster.restore(node)
        if step == "look":
            assert watched.now() == naive(cluster, typical)
    assert watched.now() == naive(cluster, typical)
