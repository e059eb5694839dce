"""Profiles of our own."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clusters import read_cluster
from skep.core.cluster import Allocation, Cluster, NodeSpec, Slice
from skep.core.errors import InputError
from skep.core.model import JobSpec, Role, Shape, gpu_shape
from skep.profiles import read_profile
from skep.profiles.native import read_native
from skep.profiles.profile import levels_of, nearest_count

ROOT = Path(__file__).parents[3]
EXAMPLE = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/reference/profiles.md").read_text(), re.DOTALL)
assert EXAMPLE is not None
LAB = read_native(EXAMPLE[1], "lab.yaml")

# Nodes 0 and 1 are in one rack, 2 in another; 3 and 4 have other gpus; 5 has none.
CLUSTER = Cluster(
    [
        NodeSpec("a0", 16, "v100", within=(("rack", "r0"),), inner=(("switch", 4),)),
        NodeSpec("a1", 16, "v100", within=(("rack", "r0"),)),
        NodeSpec("a2", 16, "v100", within=(("rack", "r1"),)),
        NodeSpec("b0", 16, "a100", within=(("rack", "r1"),)),
        NodeSpec("c0", 16, "k80", within=(("rack", "r1"),)),
        NodeSpec("d0", 0, cpu_milli=8000),
    ]
)


def job(model: str, gpus: int, *gpu_types: str) -> JobSpec:
    return JobSpec("j", (gpu_shape(gpus, gpu_types=gpu_types),), model=model)


def on(**gpus: int) -> Allocation:
    """`on(n0=4, n3=2)`: so many gpus on nodes 0 and 3."""
    slices = tuple(Slice(int(name[1:]), (1 << count) - 1) for name, count in gpus.items())
    return Allocation(slices, sum(gpus.values()))


@pytest.mark.parametrize(
    ("spec", "allocation", "neighbours", "rate"),
    [
        (job("resnet50", 8), on(n0=8), [], 1.0),
        (job("resnet50", 8), on(n3=8), [], 2.4),
        (job("resnet50", 8, "a100"), on(n3=8), [], 1.0),
        (job("resnet50", 8, "a100", "v100"), on(n0=8), [], 1 / 2.4),
        (job("gpt", 8), on(n3=8), [], 2.0),
        (job("resnet50", 8), on(n0=4), [], 4 * 0.9 / (8 * 0.8)),
        (job("bert", 1), on(n0=8), [], 8 * 0.95),
        (job("gpt", 6), on(n0=3), [], 3 * 0.9 / (6 * 0.8)),
        (job("gpt", 8), on(n0=4, n1=4), [], 0.9),
        (job("gpt", 8), on(n0=4, n2=4), [], 0.7),
        (job("gpt", 8), on(n0=4, n3=4), [], 0.7),
        (job("gpt", 8), on(n3=4, n4=4), [], 0.25 * 0.9),
        (job("gpt", 1), on(n0=1), [job("bert", 1)], 0.8),
        (job("bert", 1), on(n0=1), [job("resnet50", 1)], 0.5),
        (job("bert", 1), on(n0=1), [job("gpt", 1)], 0.7),
        (job("bert", 1), on(n0=1), [job("gpt", 1), job("resnet50", 1)], 0.35),
        (job("bert", 4), on(n1=4), [job("gpt", 1), job("resnet50", 1)], 0.5),
    ],
    ids=[
        "a job at its reference",
        "a faster type",
        "the first type a job names is its reference",
        "the second type it names is relative to the first",
        "a model that is not listed takes the default",
        "half the gpus scale better",
        "more gpus than it asked for",
        "numbers between the listed ones scale as the nearest",
        "two nodes of a rack",
        "two racks",
        "mixed types run as the slowest",
        "mixed types in one rack",
        "a neighbour",
        "a neighbour that is named",
        "a neighbour that is not named",
        "two neighbours on one gpu multiply",
        "the worst neighbour of a gang counts",
    ],
)
def test_rates_of_the_example_on_the_page(
    spec: JobSpec, allocation: Allocation, neighbours: list[JobSpec], rate: float
) -> None:
    assert LAB.speed(CLUSTER).rate(spec, allocation, neighbours, 0.0) == pytest.approx((rate, math.inf))


def test_a_share_of_a_gpu_is_its_own_reference() -> None:
    spec = JobSpec("j", (gpu_shape(1, gpu_milli=460),), model="gpt")
    allocation = Allocation((Slice(0, 1, milli=460),), 0.46)
    assert LAB.speed(CLUSTER).rate(spec, allocation, [], 0.0)[0] == 1.0


def test_cpus_are_a_type() -> None:
    profile = read_native("default: {types: {v100: 1, cpu: 0.1}}\nreference: v100", "p.yaml")
    either = JobSpec("j", (gpu_shape(2), Shape((Role(cpu=16),))))
    only = JobSpec("k", (Shape((Role(cpu=16),)),))
    allocation = Allocation((Slice(5, cpu_milli=8000),), 0)
    speed = profile.speed(CLUSTER)
    assert speed.rate(either, allocation, [], 0.0)[0] == pytest.approx(0.1)
    assert speed.rate(only, allocation, [], 0.0)[0] == 1.0


def test_a_level_that_is_not_listed_counts_as_the_next_inside() -> None:
    profile = read_native("default: {locality: {switch: 0.9, rack: 0.5}}", "p.yaml")
    speed = profile.speed(CLUSTER)
    rates = [
        speed.rate(job("m", sum(piece.gpus.bit_count() for piece in where.slices)), where, [], 0.0)[0]
        for where in (on(n0=1), on(n0=2), on(n0=8), on(n0=1, n1=1), on(n0=1, n2=1))
    ]
    assert rates == [1.0, 0.9, 0.9, 0.5, 0.5]


def test_an_empty_default_changes_nothing() -> None:
    profile = read_native("default: {}", "p.yaml")
    speed = profile.speed(CLUSTER)
    assert not speed.knows_sharing
    assert LAB.speed(CLUSTER).knows_sharing
    assert speed.rate(job("m", 8), on(n0=4, n4=4), [job("o", 1)], 0.0)[0] == 1.0


@pytest.mark.parametrize(
    ("model", "gpus", "gpu_type", "steps_per_s"),
    [
        ("resnet50", 1, "v100", 10.0),
        ("resnet50", 8, "a100", 10 * 2.4 * 8 * 0.8),
        ("bert", 1, "v100", None),
        ("gpt", 1, "v100", None),
    ],
    ids=["as written", "scaled", "a model without steps", "a model that is not listed"],
)
def test_steps_per_s(model: str, gpus: int, gpu_type: str, steps_per_s: float | None) -> None:
    assert LAB.steps_per_s(model, gpus, gpu_type) == pytest.approx(steps_per_s)


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"models": {"m": {"types": {"A100": 2.5}}}}, indent="\t"))
    speed = read_profile(path).speed(CLUSTER)
    assert speed.rate(job("m", 1), on(n3=1), [], 0.0)[0] == 2.5


FAULTS = {
    "an unknown key": ("model: {}", ":1: unknown key model, did you mean models?"),
    "an unknown section": (
        "models:\n  m: {scalling: {}}",
        ":2: unknown key models.m.scalling, did you mean scaling?",
    ),
    "steps for all models": ("default: {steps_per_s: 1}", "unknown key default.steps_per_s"),
    "nothing in it": ("name: lab", "neither default nor models is given"),
    "a factor of zero": ("default: {types: {k80: 0}}", "default.types.k80 is 0, expected a number above 0"),
    "a negative factor": ("default: {types: {k80: -1}}", "default.types.k80 is -1"),
    "a factor that is no number": ("default: {types: {k80: slow}}", "default.types.k80 is slow"),
    "a factor that is not finite": ("default: {types: {k80: .inf}}", "default.types.k80 is .inf"),
    "an absurd factor": ("default: {types: {k80: 1e7}}", "at most 1e+06"),
    "gpus that are no number": (
        "default: {scaling: {two: 1}}",
        "default.scaling.two is not a number of GPUs",
    ),
    "no gpus": ("default: {scaling: {0: 1}}", "default.scaling.0 is not a number of GPUs"),
    "one gpu that is not itself": ("default: {scaling: {1: 0.9}}", "default.scaling.1 is 0.9, expected 1"),
    "locality that makes faster": ("default: {locality: {rack: 1.2}}", "default.locality.rack is 1.2"),
    "sharing that makes faster": ("default: {sharing: 1.5}", "default.sharing is 1.5"),
    "sharing that is a list": ("default: {sharing: [1]}", "default.sharing is a list"),
    "types that are a list": ("default: {types: [v100]}", "default.types is a list, expected a mapping"),
    "an empty section": ("default: {types: }", "default.types is empty, expected a mapping"),
    "no steps": ("models: {m: {steps_per_s: 0}}", "models.m.steps_per_s is 0"),
    "no YAML": ("default: {", "is not YAML"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_with_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_profile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


allocations = st.dictionaries(st.integers(0, 4), st.integers(1, 16), min_size=1).map(
    lambda counts: on(**{f"n{node}": count for node, count in counts.items()})
)
models = st.sampled_from(["resnet50", "bert", "gpt", ""])


@given(models, st.integers(1, 64), allocations, st.lists(models, max_size=3))
def test_a_rate_is_above_zero_and_the_same_when_asked_again(
    model: str, gpus: int, allocation: Allocation, others: list[str]
) -> None:
    speed = LAB.speed(CLUSTER)
    beside = [job(other, 1) for other in others]
    rate = speed.rate(job(model, gpus), allocation, beside, 0.0)
    assert 0 < rate[0] < 1000
    assert speed.rate(job(model, gpus), allocation, beside[::-1], 7.0) == rate
    assert speed.rate(job(model, gpus), allocation, [], 0.0)[0] >= rate[0]


@given(models, allocations)
def test_a_gang_is_as_fast_as_its_slowest_member(model: str, allocation: Allocation) -> None:
    """The same gang with every node of one of its types is never slower than mixed."""
    types = {CLUSTER.nodes[piece.node].spec.gpu_type for piece in allocation.slices}
    mixed = LAB.speed(CLUSTER).rate(job(model, 4), allocation, [], 0.0)[0]
    pure = []
    for name in types:
        specs = [NodeSpec(node.name, node.gpu_count, name, within=node.spec.within) for node in CLUSTER.nodes]
        pure.append(LAB.speed(Cluster(specs)).rate(job(model, 4), allocation, [], 0.0)[0])
    assert mixed == pytest.approx(min(pure))


@given(allocations)
def test_the_quick_way_finds_the_level_that_the_cluster_finds(allocation: Allocation) -> None:
    levels = levels_of(CLUSTER)
    profile = read_native(
        f"default: {{locality: {{{', '.join(f'{x}: 0.{9 - i}' for i, x in enumerate(levels))}}}}}", "p"
    )
    gpus = sum(piece.gpus.bit_count() for piece in allocation.slices)
    expected = 0.9 - levels.index(CLUSTER.common_level(allocation)) / 10
    assert profile.speed(CLUSTER).rate(job("m", gpus), allocation, [], 0.0)[0] == pytest.approx(expected)


def test_a_flat_cluster_has_three_levels() -> None:
    cluster = read_cluster("4x4")
    assert levels_of(cluster) == ("gpu", "node", "cluster")
    assert levels_of(CLUSTER) == ("gpu", "switch", "node", "rack", "cluster")
    speed = read_native("default: {locality: {cluster: 0.5}}", "p").speed(cluster)
    rates = [speed.rate(job("m", 2), where, [], 0.0)[0] for where in (on(n0=2), on(n0=1, n3=1))]
    assert rates == [1.0, 0.5]


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [(1, 1), (2, 2), (3, 4), (6, 8), (5, 4), (64, 8)],
    ids=lambda count: f"{count} gpus",
)
def test_nearest_is_by_ratio(wanted: int, nearest: int) -> None:
    assert nearest_count([1, 2, 4, 8], wanted) == nearest
