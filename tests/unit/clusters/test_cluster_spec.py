"""Clusters typed on the command line."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skep.clusters import read, read_cluster
from skep.clusters.read import read_text
from skep.core.errors import InputError


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ("1x1", [("n0", 1, "")]),
        ("2x8", [("n0", 8, ""), ("n1", 8, "")]),
        ("2x8:V100", [("n0", 8, "v100"), ("n1", 8, "v100")]),
        ("1x8:v100+2x4:p100", [("n0", 8, "v100"), ("n1", 4, "p100"), ("n2", 4, "p100")]),
        ("1x8:v100-32gb", [("n0", 8, "v100-32gb")]),
        ("1X2", [("n0", 2, "")]),
    ],
    ids=[
        "the smallest",
        "nodes and gpus",
        "types are in lower case",
        "several parts are numbered through",
        "a type may have a dash",
        "a capital X will do",
    ],
)
def test_a_spec_is_its_nodes(spec: str, nodes: list[tuple[str, int, str]]) -> None:
    cluster = read_cluster(spec)
    assert [(node.name, node.spec.gpus, node.spec.gpu_type) for node in cluster.nodes] == nodes
    assert cluster.name == spec


def test_names_sort_as_the_nodes_are_numbered() -> None:
    names = [node.name for node in read_cluster("101x1").nodes]
    assert names == sorted(names)
    assert names[0] == "n000"


parts = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 1000), st.sampled_from(["", "v100", "t4", "3090"])),
    min_size=1,
    max_size=4,
)


@given(parts)
def test_what_is_written_is_what_is_read(parts: list[tuple[int, int, str]]) -> None:
    spec = "+".join(f"{count}x{gpus}" + (f":{name}" if name else "") for count, gpus, name in parts)
    cluster = read_cluster(spec)
    expected = [(gpus, name) for count, gpus, name in parts for _ in range(count)]
    assert [(node.spec.gpus, node.spec.gpu_type) for node in cluster.nodes] == expected
    assert len(cluster.by_name) == len(expected)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("64*8", "64*8 is not NODESxGPUS"),
        ("0x8", "0 nodes, expected 1 to 100,000"),
        ("8x0", "0 GPUs per node, expected 1 to 1,000"),
        ("8x", "8x is not NODESxGPUS"),
        ("x8", "x8 is not NODESxGPUS"),
        ("64x8:", "64x8: is not NODESxGPUS"),
        ("64x8+", "an empty part is not NODESxGPUS"),
        ("64 x 8", "64 x 8 is not NODESxGPUS"),
        ("1000000000x8", "1000000000 nodes, expected 1 to 100,000"),
        ("60000x8+60000x8", "120,000 nodes, expected at most 100,000"),
        ("8x1001", "1001 GPUs per node"),
        ("9" * 6000 + "x8", "nodes, expected 1 to 100,000"),
        ("1e9x8", "neither a spec nor a file"),
        ("-4x8", "neither a spec nor a file"),
        ("", "neither a spec nor a file"),
        ("\0", "neither a spec nor a file"),
        ("a" * 5000, "neither a spec nor a file"),
    ],
    ids=[
        "a star is no x",
        "no nodes",
        "no gpus",
        "gpus left out",
        "nodes left out",
        "a colon without a type",
        "a plus without a part",
        "blanks",
        "far too many nodes",
        "too many nodes in all",
        "too many gpus",
        "a number that Python would not convert",
        "a float",
        "a negative number",
        "nothing",
        "a zero byte",
        "a name too long for a file",
    ],
)
def test_a_malformed_spec_is_one_line_and_a_hint(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "64x8:v100" in caught.value.hint or "at most" in message


@given(st.text(alphabet="0123456789x:+*. v-/", max_size=12))
def test_nothing_typed_breaks_it(spec: str) -> None:
    assume(not re.search("[0-9]{4}x", spec))
    try:
        gpus = read_cluster(spec).gpu_total
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 (most specs are wrong, a few are not)
    else:
        assert gpus


@pytest.mark.parametrize(
    "text",
    [
        "100000x17",
        "99999x16+1x17",
        "1601x1000",
        "nodes: [{count: 100000, gpus: 17}]",
        "nodes: [{count: 60000, gpus: 16}, {count: 40000, gpus: 17}]",
        "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{at},1,1,1000,V100\n" for at in range(1601)),
    ],
    ids=["spec", "two parts", "large nodes", "file", "file of two groups", "node list"],
)
def test_the_product_is_bounded_before_anything_is_built(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "Cluster", None)  # building it would fail
    with pytest.raises(InputError, match=r"1,[67]\d\d,\d\d\d GPUs, expected at most 1,600,000"):
        read_text(text, "x")
