"""Checks of the placements: on which nodes a job lands when these have 1, 3, 2 and 4 of 4 GPUs free."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skep.clusters.read import read_cluster
from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec, Slice
from skep.core.fragments import Fragments, Typical
from skep.core.job import Job
from skep.core.model import JobSpec, gpu_shape
from skep.core.plan import Plan
from skep.core.tasks import Task
from skep.experiments.fill import Filling
from skep.policies.place import PLACES, Fgd, Place, Random
from skep.profiles.native import read_native
from skep.traces.trace import Trace, TraceJob
from skep.verify.check import Check, Finding, between, near, same
from skep.verify.play import Rows, node_gpus, play, play_jobs, starts

FREE = (1, 3, 2, 4)

SCATTERED: Rows = ((0, 100, 3), (0, 100, 3), (10, 50, 2))
"""On 2 nodes of 4 GPUs: one GPU is free on each node, c asks for two."""

ONE_EACH: Rows = ((0, 200, 3), (0, 200, 3), (0, 200, 3), (0, 200, 3), (10, 50, 2))
"""On 2 racks of 2 nodes of 4 GPUs: one GPU is free on every node, e asks for two."""

ONE_A_RACK: Rows = ((0, 200, 4), (0, 200, 3), (0, 200, 4), (0, 200, 3), (10, 50, 2))
"""On the same nodes: one GPU is free in each rack."""


def used_cluster() -> Cluster:
    cluster = read_cluster("4x4")
    for node, free in enumerate(FREE):
        if free < 4:
            cluster.take(Allocation((Slice(node, (1 << 4 - free) - 1),), 4 - free))
    return cluster


def put(place: Place, gpus: int, *, model: str = "", seq: int = 0) -> dict[str, int]:
    """How many GPUs of which nodes a job gets; empty if it must wait."""
    cluster = used_cluster()
    job = Job(JobSpec("job", (gpu_shape(gpus),), model=model), seq, 0.0)
    found = place.find(cluster, Plan({}, cluster), job, job.spec.shapes[0], 0.0)
    if found is None:
        return {}
    picks = {cluster.nodes[piece.node].name: piece.gpus.bit_count() for piece in found.slices}
    return dict(sorted(picks.items()))


def placed(place: str, expected: Mapping[int, dict[str, int]]) -> Callable[[], list[Finding]]:
    """What a plain check asks: for each number of GPUs, how many of them a job gets on which nodes."""
    return lambda: [same(f"{gpus} GPUs", nodes, put(PLACES[place](), gpus)) for gpus, nodes in expected.items()]


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


def fgd() -> list[Finding]:
    """A node with 0.3 and 1.0 of its two GPUs left; 0.5 GPU (half of all tasks), 1 GPU (0.3) and 2 GPUs (0.2)."""
    tasks = ((Task(1, 500), 5), (Task(1), 3), (Task(2), 2))
    measure = Fragments(Typical(tasks))
    there = read_cluster("1x2")
    there.take(Allocation((Slice(0, 0b01, milli=700),), 0))
    job = Job(JobSpec("job", (gpu_shape(1, gpu_milli=300),)), 0, 0.0)
    found = Fgd(Typical(tasks)).find(there, Plan({}, there), job, job.spec.shapes[0], 0.0)
    per_gpu = WHOLE * measure.scale
    return [
        same("fragments before, in GPUs", 0.5, measure.of("", 0, 1, (300,)) / per_gpu),
        same("with 0.3 more on the first GPU", 0.2, measure.of("", 0, 1) / per_gpu),
        same("with 0.3 more on the second", 0.65, measure.of("", 0, 0, (300, 700)) / per_gpu),
        same("the GPU that it takes", 0b01, found.slices[0].gpus if found is not None else None),
    ]


def fill_fgd() -> list[Finding]:
    """Pods of 0.6 GPU come to two GPUs until 2.6 GPUs have been asked for."""
    pods = Trace("pods", "native", [TraceJob(0.0, 1.0, JobSpec("pod", (gpu_shape(1, gpu_milli=600),)))])
    found = Filling(pods, read_cluster("1x2"), 1.3).run("fgd", 42)
    return [
        same("pods that arrive", 5, found.pods),
        same("pods that are dropped", 3, found.dropped),
        near("allocated, %", 60.0, found.allocated_percent),
        near("unallocated GPUs", 0.8, found.unallocated_gpus),
        near("fragments of these, %", 100.0, found.fragment_percent or 0.0),
    ]


def topology() -> list[Finding]:
    """One node of 8 GPUs: two sockets of two switches of two. The first switch is in use but for one GPU."""
    there = Cluster([NodeSpec("n0", 8, inner=(("socket", 4), ("switch", 2)))])
    there.take(Allocation((Slice(0, 0b0000_0001),), 1))
    found = {}
    for gpus in (1, 2, 4, 6):
        job = Job(JobSpec("job", (gpu_shape(gpus),)), 0, 0.0)
        placed = PLACES["topology"]().find(there, Plan({}, there), job, job.spec.shapes[0], 0.0)
        found[gpus] = placed.slices[0].gpus if placed is not None else 0
    return [
        same("1 GPU, the other of the broken switch", 0b0000_0010, found[1]),
        same("2 GPUs, a whole switch", 0b0000_1100, found[2]),
        same("4 GPUs, a whole socket", 0b1111_0000, found[4]),
        same("6 GPUs, that socket and a whole switch", 0b1111_1100, found[6]),
    ]


def skew_gated() -> list[Finding]:
    place = PLACES["skew-gated"]()
    return [
        same("3 GPUs of vgg16", {"n1": 3}, put(place, 3, model="vgg16")),
        same("3 GPUs of resnet50", {"n0": 1, "n1": 2}, put(place, 3, model="resnet50")),
        same("3 GPUs, no model given", {"n0": 1, "n1": 2}, put(place, 3)),
    ]


def skew_waits() -> list[Finding]:
    vgg = play("tiresias-l:place=skew-gated", "2x4", SCATTERED, models=("vgg16",) * 3)
    resnet = play("tiresias-l:place=skew-gated", "2x4", SCATTERED, models=("vgg16", "vgg16", "resnet50"))
    return [
        same("start of c if it is vgg16", 100.0, starts(vgg)[2]),
        same("start of c if it is resnet50", 10.0, starts(resnet)[2]),
        same("its GPUs on each node", {"n0": 1, "n1": 1}, node_gpus(resnet, 2)),
    ]


def patience() -> list[Finding]:
    policy = "fifo:place=consolidate,patience=30+60"
    in_rack = play(policy, racks(), ONE_EACH)
    anywhere = play(policy, racks(), ONE_A_RACK)
    return [
        same("start of e, a rack has room", 40.0, starts(in_rack)[4]),
        same("its GPUs on each node", {"n0": 1, "n1": 1}, node_gpus(in_rack, 4)),
        same("start of e, no rack has room", 100.0, starts(anywhere)[4]),
        same("its GPUs on each node", {"n1": 1, "n3": 1}, node_gpus(anywhere, 4)),
    ]


def racks() -> Cluster:
    """4 nodes of 4 GPUs, the first two in one rack, the others in another."""
    nodes = [NodeSpec(f"n{number}", 4, within=(("rack", f"r{number // 2}"),)) for number in range(4)]
    return Cluster(nodes, "2 racks of 2x4")


def least_used() -> list[Finding]:
    speed = read_native("models: {low: {use: {sm: 0.1}}, high: {use: {sm: 0.9}}}", "profile").speed
    rows = (("a", "low", 500), ("b", "high", 300), ("c", "low", 200))
    jobs = [
        TraceJob(0.0, 100.0, JobSpec(name, (gpu_shape(1, gpu_milli=milli),), model=model))
        for name, model, milli in rows
    ]
    run = play_jobs("fifo:place=least-utilised", "2x1", jobs, speed=speed)
    unknown = play_jobs("fifo:place=least-utilised", "2x1", jobs)
    return [
        same("c joins a, which has more of its GPU and uses less", node_gpus(run, 0), node_gpus(run, 2)),
        same("where no use is known, it joins b, which has less", node_gpus(unknown, 1), node_gpus(unknown, 2)),
    ]


CHECKS = (
    Check(
        name="place-least-used",
        policy="least-utilised",
        title="What a model was measured to use counts, not what its job has booked",
        source="Xiao et al. (AntMan), OSDI 2020, the GPU with the lowest recent use. By hand: a has 0.5 of a GPU and "
        "uses 0.1; b has 0.3 and would use 0.9, so all of it",
        ask=least_used,
    ),
    Check(
        name="place-any",
        policy="any",
        title="Free GPUs anywhere, in the order of the nodes",
        source="by hand, 1 3 2 4 free: node 0 has one, node 1 the other two",
        ask=placed("any", {3: {"n0": 1, "n1": 2}}),
    ),
    Check(
        name="place-first-fit",
        policy="first-fit",
        title="The first node that takes the whole job",
        source="by hand, 1 3 2 4 free: 2 fit on node 1 first, 4 on node 3 alone",
        ask=placed("first-fit", {2: {"n1": 2}, 4: {"n3": 4}}),
    ),
    Check(
        name="place-best-fit",
        policy="best-fit",
        title="Each task on the fullest node with room",
        source="by hand, 1 3 2 4 free: node 0 (one left), then node 2 (two), then node 1 (three)",
        ask=placed("best-fit", {2: {"n0": 1, "n2": 1}, 6: {"n0": 1, "n1": 3, "n2": 2}}),
    ),
    Check(
        name="place-consolidate",
        policy="consolidate",
        title="Fewest nodes, the fullest that fits; larger than a node: idle nodes plus one",
        source="by hand, 1 3 2 4 free: 2 fill node 2, 3 fill node 1, 6 are idle node 3 and 2 on node 2, 8 would need "
        "two idle nodes",
        ask=placed("consolidate", {2: {"n2": 2}, 3: {"n1": 3}, 6: {"n2": 2, "n3": 4}, 8: {}}),
    ),
    Check(
        name="place-spread",
        policy="spread",
        title="Each task on the node with the most free GPUs",
        source="by hand, 1 3 2 4 free: node 3 (4), node 1 (3, the lower of two), node 3 (3)",
        ask=placed("spread", {3: {"n1": 1, "n3": 2}}),
    ),
    Check(
        name="place-roomiest",
        policy="roomiest",
        title="The nodes with the most free GPUs, each filled before the next",
        source="by hand, 1 3 2 4 free: node 3 (4), then node 1",
        ask=placed("roomiest", {3: {"n3": 3}, 6: {"n1": 2, "n3": 4}}),
    ),
    Check(
        name="place-even",
        policy="even",
        title="As few nodes as possible, with equal numbers of GPUs on each",
        source="Peng et al. (Optimus), EuroSys 2018, by hand, 1 3 2 4 free: 6 are 3 on each of two nodes",
        ask=placed("even", {4: {"n3": 4}, 5: {"n1": 2, "n3": 3}, 6: {"n1": 3, "n3": 3}}),
    ),
    Check(
        name="place-random",
        policy="random",
        title="Every node with room equally often; chance follows from the seed",
        source="by hand: 2,000 jobs of one GPU, four nodes with room, a quarter each (0.01 is one standard deviation)",
        ask=random,
    ),
    Check(
        name="place-worst-fit",
        policy="worst-fit",
        title="The node that keeps the most",
        source="by hand, 1 3 2 4 free: node 3",
        ask=placed("worst-fit", {1: {"n3": 1}, 2: {"n3": 2}}),
    ),
    Check(
        name="place-least-utilised",
        policy="least-utilised",
        title="The node of which the least is in use",
        source="Xiao et al. (AntMan), OSDI 2020, by hand, 1 3 2 4 free: node 3",
        ask=placed("least-utilised", {1: {"n3": 1}, 3: {"n3": 3}}),
    ),
    Check(
        name="place-affinity",
        policy="affinity",
        title="Nodes with jobs of the same size, then idle ones, then others",
        source="Xiao et al. (Gandiva), OSDI 2018, by hand: node 1 hosts one GPU, node 2 two, node 0 three and has "
        "no room for three more, node 3 nothing",
        ask=placed("affinity", {1: {"n1": 1}, 2: {"n2": 2}, 3: {"n3": 3}}),
    ),
    Check(
        name="place-dot-product",
        policy="dot-product",
        title="The smallest product of what is free and what is asked for",
        source="Grandl et al. (Tetris), SIGCOMM 2014, as FGD's authors use it. By hand: the fullest node with room",
        ask=placed("dot-product", {1: {"n0": 1}, 2: {"n2": 2}, 3: {"n1": 3}}),
    ),
    Check(
        name="place-gpu-packing",
        policy="gpu-packing",
        title="Idle GPUs of nodes in use before idle nodes",
        source="Weng et al. (FGD), ATC 2023, by hand: nodes in use are equal and the lowest with room is taken",
        ask=placed("gpu-packing", {1: {"n0": 1}, 2: {"n1": 2}, 4: {"n3": 4}}),
    ),
    Check(
        name="place-gpu-clustering",
        policy="gpu-clustering",
        title="The same size beside the same size",
        source="Weng et al. (FGD), ATC 2023, by hand: node 1 hosts one GPU, node 2 two; three go to idle node 3",
        ask=placed("gpu-clustering", {1: {"n1": 1}, 2: {"n2": 2}, 3: {"n3": 3}}),
    ),
    Check(
        name="place-fgd",
        policy="fgd",
        title="The measure of fragments, and the GPU where it grows least",
        source="Weng et al. (FGD), ATC 2023, by hand: 0.5 x 0.3 + 0.3 x 0.3 + 0.2 x 1.3 = 0.50",
        ask=fgd,
    ),
    Check(
        name="fill-fgd",
        policy="fgd",
        title="Filling a cluster: what is allocated, dropped and left as fragments",
        source="the experiment of Weng et al. (FGD), ATC 2023, by hand: 0.6 fits once on each GPU, 0.4 is left",
        ask=fill_fgd,
    ),
    Check(
        name="place-topology",
        policy="topology",
        title="The smallest cell that holds the job",
        source="Amaral et al., SC 2017, by hand on two sockets of two switches of two GPUs, the first GPU taken",
        ask=topology,
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
        source="Gu et al. (Tiresias), NSDI 2019, by hand: one GPU is free on each of two nodes until 100",
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
