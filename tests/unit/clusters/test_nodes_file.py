"""Clusters from files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clusters import read_cluster
from skep.clusters.nodes_file import parse_nodes
from skep.clusters.read import read_text
from skep.core.cluster import UNLIMITED, Allocation, NodeSpec, Slice
from skep.core.errors import InputError
from skep.files.document import Field, read_document

ROOT = Path(__file__).parents[3]
SHARED = ROOT / ".." / "shared"


def written(tmp_path: Path, text: str | bytes, name: str = "lab.yaml") -> str:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_every_key_of_a_node_arrives(tmp_path: Path) -> None:
    cluster = read_cluster(
        written(
            tmp_path,
            """
            name: lab
            levels: [row, rack]
            nodes:
              - {count: 2, name: a, gpus: 8, gpu_type: V100, gpu_mem_gib: 32, cpus: 1.5, memory_gib: 512,
                 rack: r1, row: east, switch: 4, socket: 8}
              - {gpus: 4, gpu_type: 3090}
              - {name: head, cpus: 32}
            """,
        )
    )
    big = NodeSpec(
        "a0",
        8,
        "v100",
        gpu_mem_mib=32768,
        cpu_milli=1500,
        memory_mib=524288,
        within=(("row", "east"), ("rack", "r1")),
        inner=(("socket", 8), ("switch", 4)),
    )
    assert cluster.name == "lab"
    assert cluster.nodes[0].spec == big
    assert [node.name for node in cluster.nodes] == ["a0", "a1", "n2", "head"]
    assert cluster.nodes[2].spec == NodeSpec("n2", 4, "3090")
    assert cluster.nodes[3].spec == NodeSpec("head", 0, cpu_milli=32000, memory_mib=UNLIMITED)


def test_speeds_of_virtual_gpus_arrive_also_with_virtual_clusters() -> None:
    nodes = "nodes: [{gpus: 2, gpu_type: slow, speed: {lm: 0.8, default: 0.4}}, {count: 2, gpus: 2, gpu_type: full}]\n"
    for text in (nodes, nodes + "vcs: {a: 1 node of slow, b: 2 nodes of full}\n"):
        slow, full, _ = read_text(text, "lab")[0].nodes
        assert (slow.spec.speed_of("lm"), slow.spec.speed_of(""), full.spec.speed_of("lm")) == (0.8, 0.4, 1.0)


def test_the_cells_of_a_file_give_levels(tmp_path: Path) -> None:
    cluster = read_cluster(
        written(
            tmp_path,
            "nodes: [{count: 2, gpus: 8, rack: r1, switch: 2, socket: 4}, {gpus: 8, rack: r2}]",
        )
    )
    levels = [
        cluster.common_level(Allocation(slices, 2))
        for slices in (
            (Slice(0, 0b11),),
            (Slice(0, 0b110),),
            (Slice(0, 0b11000),),
            (Slice(0, 1), Slice(1, 1)),
            (Slice(0, 1), Slice(2, 1)),
        )
    ]
    assert levels == ["switch", "socket", "node", "rack", "cluster"]


def test_a_cluster_without_a_name_is_named_after_its_file(tmp_path: Path) -> None:
    assert read_cluster(written(tmp_path, '{"nodes": [{"gpus": 8}]}', "big.json")).name == "big.json"


def test_moderate_aliases_are_fine(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, "nodes:\n  - &a {gpus: 2}\n  - *a\n"))
    assert [node.name for node in cluster.nodes] == ["n0", "n1"]


def test_merge_keys_add_what_is_not_said(tmp_path: Path) -> None:
    text = """
    nodes:
      - &small {gpus: 2, gpu_type: k80, cpus: 4}
      - &new {<<: *small, gpu_type: v100}
      - {name: last, <<: [{cpus: 16}, *new]}
    """
    nodes = [node.spec for node in read_cluster(written(tmp_path, text)).nodes]
    assert [(node.gpus, node.gpu_type, node.cpu_milli) for node in nodes] == [
        (2, "k80", 4000),
        (2, "v100", 4000),
        (2, "v100", 16000),
    ]


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)

FAULTS = {
    "an unknown key with the nearest one": (
        "nodes:\n  - {gpu: 8}",
        ":2: unknown key nodes[0].gpu, did you mean gpus?",
    ),
    "an unknown key at the top": ("node: []", ":1: unknown key node, did you mean nodes?"),
    "a level that was not declared": ("nodes: [{gpus: 8, row: a}]", "unknown key nodes[0].row"),
    "a key that is given twice": ("nodes: [{gpus: 8, gpus: 4}]", "nodes[0].gpus is given twice"),
    "no nodes": ("nodes: []", ":1: nodes are 0, expected 1 to 100,000"),
    "a merge of no mapping": ("nodes: [{<<: 8}]", ":1: nodes[0].<< is not a mapping"),
    "nodes left out": ("name: lab", "nodes is missing"),
    "nodes that are no list": ("nodes: 8", ":1: nodes is 8, expected a list"),
    "a node that is not a mapping": ("nodes: [8x8]", "nodes[0] is 8x8, expected a mapping"),
    "a file that is a list": ("- gpus: 8", "the file is a list, expected a mapping"),
    "a number in quotes": ('nodes: [{gpus: "8"}]', 'nodes[0].gpus is "8", expected a whole number'),
    "a number that is a word": ("nodes: [{gpus: many}]", "nodes[0].gpus is many, expected a whole number"),
    "a negative number": (
        "nodes:\n\n  - gpus: -1",
        ":3: nodes[0].gpus is -1, expected a whole number from 0",
    ),
    "part of a gpu": ("nodes: [{gpus: 1.5}]", "nodes[0].gpus is 1.5"),
    "negative memory": (
        "nodes: [{gpus: 8, memory_gib: -1}]",
        "nodes[0].memory_gib is -1, expected a number >= 0",
    ),
    "not a number": ("nodes: [{gpus: 8, cpus: .nan}]", "nodes[0].cpus is .nan"),
    "an infinite number": ("nodes: [{gpus: 8, cpus: 1e999}]", "nodes[0].cpus is 1e999"),
    "an empty value": ("nodes: [{gpus: 8, gpu_type: }]", "nodes[0].gpu_type is empty, expected a name"),
    "a count of zero": (
        "nodes: [{count: 0, gpus: 8}]",
        "nodes[0].count is 0, expected a whole number from 1",
    ),
    "a huge count": ("nodes: [{count: 1e9, gpus: 8}]", "nodes[0].count is 1e9"),
    "too many nodes in all": (
        "nodes: [{count: 60000, gpus: 8}, {count: 60000, gpus: 8}]",
        "nodes are 120,000, expected 1 to 100,000",
    ),
    "too many gpus": ("nodes: [{gpus: 1001}]", "from 0 to 1,000"),
    "neither gpus nor cpus": ("nodes: [{memory_gib: 8}]", "nodes[0] has neither GPUs nor CPUs"),
    "no cpus and no gpus in so many words": ("nodes: [{gpus: 0, cpus: 0}]", "has neither GPUs nor CPUs"),
    "a GPU type without gpus": ("nodes: [{cpus: 8, gpu_type: t4}]", "expected none where a node has no GPUs"),
    "a speed of nothing": ("nodes: [{gpus: 8, speed: 0}]", "nodes[0].speed is 0, expected a number >= 0.01, at most 1"),
    "a speed above that of a full GPU": ("nodes: [{gpus: 8, speed: {lm: 2}}]", "nodes[0].speed.lm is 2, expected"),
    "two speeds of one type": (
        "nodes:\n- {gpus: 8, gpu_type: t4}\n- {gpus: 8, gpu_type: t4, speed: 0.5}",
        ":3: nodes[1].speed differs from that of other nodes with GPU type t4, expected one speed for a type",
    ),
    "a switch that does not divide": (
        "nodes: [{gpus: 8, switch: 3}]",
        "switch is 3, expected gpus of one switch",
    ),
    "a switch larger than its socket": (
        "nodes: [{gpus: 8, socket: 2, switch: 4}]",
        "a divisor of socket 2",
    ),
    "two nodes of one name": (
        "nodes:\n- {name: a, gpus: 8}\n- {name: a, gpus: 8}",
        ":3: nodes[1]: a second node a",
    ),
    "a name that was given to another": ("nodes: [{name: n1, gpus: 8}, {gpus: 8}]", "a second node n1"),
    "a name with a blank": ("nodes: [{name: a b, gpus: 8}]", "a name without blanks"),
    "a level of a reserved name": (
        "levels: [node]\nnodes: [{gpus: 8}]",
        "levels[0] is node, expected a name of its",
    ),
    "a tag": ("nodes: !!python/object:os.system []", "has the tag"),
    "a syntax error": ("nodes: [\n  {gpus: 8\n  name: a}", "is not YAML"),
    "two documents": ("nodes: [{gpus: 8}]\n---\nnodes: []", "has 2 YAML documents"),
    "only comments": ("# nothing\n", "has 0 YAML documents"),
    "an empty file": ("", "is empty, expected a cluster file"),
    "a binary file": (b"\x7fELF\x00\xff", "is not a text file"),
    "a file that is too large": (b"# padding\n" * 1_100_000, "is larger than 10 MB"),
    "nesting that would overrun a stack": ("[" * 1_000_000, "is nested more than 20 deep"),
    "a bomb of aliases": (BOMB, "values with its aliases expanded"),
    "an alias within itself": ("nodes: &a [*a]", "alias *a has no anchor before it"),
    "a control character": ("nodes: \x07", "is not YAML"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_with_the_file(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_cluster(path)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere.yaml", "no such file"), ("/", "is a folder"), ("/dev/zero", "is larger than 10 MB")],
    ids=["missing", "a folder", "endless"],
)
def test_a_file_that_cannot_be_read(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_cluster(path)


def test_a_long_path_is_shown_whole(tmp_path: Path) -> None:
    path = str(tmp_path / ("x" * 100) / "nowhere.yaml")
    with pytest.raises(InputError, match=re.escape(f"{path}: no such file")):
        read_cluster(path)


names = st.text(alphabet="abc019-_.", min_size=1, max_size=4).filter(lambda name: name not in "~")


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 16)), min_size=1, max_size=5), names)
def test_groups_become_their_nodes_in_order(groups: list[tuple[int, int]], rack: str) -> None:
    rows = "".join(f'- {{count: {count}, gpus: {gpus}, rack: "{rack}"}}\n' for count, gpus in groups)
    _, nodes = parse_nodes(read_document(f"nodes:\n{rows}", "lab.yaml"))
    assert [node.gpus for node in nodes] == [gpus for count, gpus in groups for _ in range(count)]
    assert [node.name for node in nodes] == sorted({node.name for node in nodes})
    assert {node.within for node in nodes} == {(("rack", rack),)}


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        found = read_document(text, "lab.yaml")
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 (most texts are wrong, a few are not)
    else:
        assert isinstance(found, Field)


def test_yaml_is_not_imported_for_a_spec() -> None:
    code = "import sys, skep.clusters; skep.clusters.read_cluster('2x8'); print('yaml' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/clusters.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    cluster = read_cluster(written(tmp_path, example[1]))
    assert (cluster.name, cluster.gpu_total, len(cluster.nodes)) == ("lab", 40, 7)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no public data in {SHARED}")
def test_a_published_hived_configuration_is_its_nodes() -> None:
    cluster = read_cluster(str(SHARED / "hived/lab6/cluster-1.yaml"))
    assert [(node.name, node.gpu_count) for node in cluster.nodes] == [("hostname-carol", 1), ("hostname-dan", 1)]
