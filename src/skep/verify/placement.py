"""Checks of the placements: on which nodes a job lands when these have 1, 3, 2 and 4 of 4 gpus free."""

from __future__ import annotations

from skep.clusters.read import read_cluster
from skep.core.cluster import Allocation, Cluster, NodeSpec, Slice
from skep.core.job import Job
from skep.core.model import JobSpec, gpu_shape
from skep.core.plan import Plan
from skep.policies.place import PLACES, Place, Random
from skep.verify.check import Check, Finding, between, same
from skep.verify.play import Rows, node_gpus, play, starts

FREE = (1, 3, 2, 4)

SCATTERED: Rows = ((0, 100, 3), (0, 100, 3), (10, 50, 2))
"""On 2 nodes of 4 gpus: one gpu is free on each node, c asks for two."""

ONE_EACH: Rows = ((0, 200, 3), (0, 200, 3), (0, 200, 3), (0, 200, 3), (10, 50, 2))
"""On 2 racks of 2 nodes of 4 gpus: one gpu is free on every node, e asks for two."""

ONE_A_RACK: Rows = ((0, 200, 4), (0, 200, 3), (0, 200, 4), (0, 200, 3), (10, 50, 2))
"""On the same nodes: one gpu is free in each rack."""


def used_cluster() -> Cluster:
    cluster = read_cluster("4x4")
    for node, free in enumerate(FREE):
        if free < 4:
            cluster.take(Allocation((Slice(node, (1 << 4 - free) - 1),), 4 - free))
    return cluster


def put(place: Place, gpus: int, *, model: str = "", seq: int = 0) -> dict[str, int]:
    """How many gpus of which nodes a job gets; nothing where it has to wait."""
    cluster = used_cluster()
    job = Job(JobSpec("job", (gpu_shape(gpus),), model=model), seq, 0.0)
    found = place.find(cluster, Plan({}, cluster), job, job.spec.shapes[0], 0.0)
    if found is None:
        return {}
    picks = {cluster.nodes[piece.node].name: piece.gpus.bit_count() for piece in found.slices}
    return dict(sorted(picks.items()))


def place_any() -> list[Finding]:
    return [same("3 gpus", {"n0": 1, "n1": 2}, put(PLACES["any"](), 3))]


def first_fit() -> list[Finding]:
    place = PLACES["first-fit"]()
    return [
        same("2 gpus", {"n1": 2}, put(place, 2)),
        same("4 gpus", {"n3": 4}, put(place, 4)),
    ]


def best_fit() -> list[Finding]:
    place = PLACES["best-fit"]()
    return [
        same("2 gpus", {"n0": 1, "n2": 1}, put(place, 2)),
        same("6 gpus", {"n0": 1, "n1": 3, "n2": 2}, put(place, 6)),
    ]


def consolidate() -> list[Finding]:
    place = PLACES["consolidate"]()
    return [
        same("2 gpus", {"n2": 2}, put(place, 2)),
        same("3 gpus", {"n1": 3}, put(place, 3)),
        same("6 gpus", {"n2": 2, "n3": 4}, put(place, 6)),
        same("8 gpus, 10 free", {}, put(place, 8)),
    ]


def spread() -> list[Finding]:
    return [same("3 gpus", {"n1": 1, "n3": 2}, put(PLACES["spread"](), 3))]


def random() -> list[Finding]:
    draws = [put(Random(seed=1), 1, seq=seq) for seq in range(2000)]
    again = [put(Random(seed=1), 1, seq=seq) for seq in range(50)]
    other = [put(Random(seed=2), 1, seq=seq) for seq in range(50)]
    shares = [sum(node in draw for draw in draws) / len(draws) for node in ("n0", "n1", "n2", "n3")]
    return [
        *(between(f"share of node {number}", 0.22, 0.28, share) for number, share in enumerate(shares)),
        same("the same seed draws the same", True, again == draws[:50]),
        same("another seed draws the same", False, other == draws[:50]),
    ]


def skew_gated() -> list[Finding]:
    place = PLACES["skew-gated"]()
    return [
        same("3 gpus of vgg16", {"n1": 3}, put(place, 3, model="vgg16")),
        same("3 gpus of resnet50", {"n0": 1, "n1": 2}, put(place, 3, model="resnet50")),
        same("3 gpus, no model said", {"n0": 1, "n1": 2}, put(place, 3)),
    ]


def skew_waits() -> list[Finding]:
    vgg = play("tiresias-l:place=skew-gated", "2x4", SCATTERED, models=("vgg16",) * 3)
    resnet = play("tiresias-l:place=skew-gated", "2x4", SCATTERED, models=("vgg16", "vgg16", "resnet50"))
    return [
        same("start of c if it is vgg16", 100.0, starts(vgg)[2]),
        same("start of c if it is resnet50", 10.0, starts(resnet)[2]),
        same("its gpus on each node", {"n0": 1, "n1": 1}, node_gpus(resnet, 2)),
    ]


def patience() -> list[Finding]:
    policy = "fifo:place=consolidate,patience=30+60"
    in_rack = play(policy, racks(), ONE_EACH)
    anywhere = play(policy, racks(), ONE_A_RACK)
    return [
        same("start of e, a rack has room", 40.0, starts(in_rack)[4]),
        same("its gpus on each node", {"n0": 1, "n1": 1}, node_gpus(in_rack, 4)),
        same("start of e, no rack has room", 100.0, starts(anywhere)[4]),
        same("its gpus on each node", {"n1": 1, "n3": 1}, node_gpus(anywhere, 4)),
    ]


def racks() -> Cluster:
    """4 nodes of 4 gpus, the first two in one rack, the others in another."""
    nodes = [NodeSpec(f"n{number}", 4, within=(("rack", f"r{number // 2}"),)) for number in range(4)]
    return Cluster(nodes, "2 racks of 2x4")


CHECKS = (
    Check(
        name="place-any",
        policy="any",
        title="Free gpus anywhere, in the order of the nodes",
        source="by hand, 1 3 2 4 free: node 0 has one, node 1 the other two",
        ask=place_any,
    ),
    Check(
        name="place-first-fit",
        policy="first-fit",
        title="The first node that takes the whole job",
        source="by hand, 1 3 2 4 free: 2 fit on node 1 first, 4 on node 3 alone",
        ask=first_fit,
    ),
    Check(
        name="place-best-fit",
        policy="best-fit",
        title="Each task on the fullest node with room",
        source="by hand, 1 3 2 4 free: node 0 (one left), then node 2 (two), then node 1 (three)",
        ask=best_fit,
    ),
    Check(
        name="place-consolidate",
        policy="consolidate",
        title="Fewest nodes, the fullest that fits; larger than a node: idle nodes plus one",
        source="by hand, 1 3 2 4 free: 2 fill node 2, 3 fill node 1, 6 are idle node 3 and 2 on node 2, 8 would need "
        "two idle nodes",
        ask=consolidate,
    ),
    Check(
        name="place-spread",
        policy="spread",
        title="Each task on the node with the most free gpus",
        source="by hand, 1 3 2 4 free: node 3 (4), node 1 (3, the lower of two), node 3 (3)",
        ask=spread,
    ),
    Check(
        name="place-random",
        policy="random",
        title="Every node with room equally often; chance follows from the seed",
        source="by hand: 2,000 jobs of one gpu, four nodes with room, a quarter each (0.01 is one standard deviation)",
        ask=random,
    ),
    Check(
        name="place-skew-gated",
        policy="skew-gated",
        title="Models with one large tensor are kept together, the others fill the gaps",
        source="Gu et al. (Tiresias), NSDI 2019: VGG is skewed, ResNet is not. By hand, 1 3 2 4 free",
        ask=skew_gated,
    ),
    Check(
        name="place-skew-waits",
        policy="skew-gated",
        title="A skewed model waits for a node, another starts at once",
        source="Gu et al. (Tiresias), NSDI 2019, by hand: one gpu is free on each of two nodes until 100",
        ask=skew_waits,
    ),
    Check(
        name="place-patience",
        policy="patience",
        title="Locality is given up level by level: node, rack, anywhere",
        source="delay scheduling (Zaharia et al., EuroSys 2010), by hand: e comes at 10, accepts its rack after 30 s "
        "and the cluster after 60 more",
        ask=patience,
    ),
)
