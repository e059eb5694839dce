"""Alibaba's node list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.clusters import read_cluster
from skep.core.cluster import NodeSpec
from skep.core.errors import InputError

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    return str(path)


def test_rows_become_nodes(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, HEADER + "a,64000,262144,2,P100\n\nb,32000,1024,0,\n"))
    assert [node.spec for node in cluster.nodes] == [
        NodeSpec("a", 2, "p100", cpu_milli=64000, memory_mib=262144),
        NodeSpec("b", 0, "", cpu_milli=32000, memory_mib=1024),
    ]
    assert cluster.name == "nodes.csv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,gpu,model\na,8,t4\n", ":1: no column cpu_milli"),
        (HEADER, "has 0 nodes"),
        (HEADER + "a,1,1,x,t4\n", ":2: gpu is x, expected a whole number from 0 to 1,000"),
        (HEADER + "a,-1,1,8,t4\n", ":2: cpu_milli is -1"),
        (HEADER + "a,1,,8,t4\n", ":2: memory_mib is empty"),
        (HEADER + ",1,1,8,t4\n", ":2: sn is empty"),
        (HEADER + "a,1,1,8\n", ":2: 4 cells, expected 5"),
        (HEADER + "a,1,1,8,t4\na,1,1,8,t4\n", ":3: sn a is given twice"),
        (HEADER + "a,0,1,0,\n", ":2: gpu is 0 and cpu_milli is 0"),
    ],
    ids=[
        "a column is missing",
        "nothing below the header",
        "gpus that are no number",
        "negative cpus",
        "no memory",
        "no name",
        "a short row",
        "a node twice",
        "neither gpus nor cpus",
    ],
)
def test_a_fault_names_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_cluster(path)
    assert str(caught.value).startswith(path)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no public data in {DATA}")
@pytest.mark.parametrize(
    ("name", "nodes"),
    [("openb_node_list_gpu_node.csv", 1213), ("openb_node_list_all_node.csv", 1523)],
    ids=["gpu nodes", "all nodes"],
)
def test_the_published_lists(name: str, nodes: int) -> None:
    cluster = read_cluster(str(DATA / "alibaba-2023" / name))
    assert (len(cluster.nodes), cluster.gpu_total, cluster.name) == (nodes, 6212, name)
    types = {pool.gpu_type for pool in cluster.pools if pool.total}
    assert types == {"p100", "t4", "g2", "g3", "a10", "v100m16", "v100m32"}
