"""What a trace can serve follows from its columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.traces.read import read_trace
from skep.traces.uses import uses


@pytest.mark.parametrize(
    ("column", "cells", "served"),
    [
        ("vc", ("a", "b"), "virtual clusters, quotas (yarn-cs, drf, --vc-map)"),
        ("user", ("a", "b"), "fairness between users"),
        ("model", ("resnet50", ""), "speeds by model (--profile), skew-gated placement"),
        ("gpu_type", ("v100", ""), "GPU types (mixed clusters)"),
        ("gpu_milli", ("500", ""), "several jobs on one GPU"),
        ("cpu", ("4", ""), "CPUs and memory of nodes"),
        ("max_gpus", ("4", ""), "elastic jobs (afs-l)"),
        ("epochs", ("4", ""), "progress by epochs (e-las)"),
        ("priority", ("4", ""), "priorities"),
        ("deadline_s", ("4", ""), "deadline misses"),
        ("needs", ("", "1"), "dependencies"),
    ],
)
def test_a_column_serves_its_question(tmp_path: Path, column: str, cells: tuple[str, str], served: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        f"job_id,submit_s,duration_s,gpus,{column}\n1,0,9,1,{cells[0]}\n2,1,9,1,{cells[1]}\n", encoding="utf-8"
    )
    assert [use.name for use in uses(read_trace(path)) if use.is_served] == [served]


def test_one_vc_has_nobody_to_share_with(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,vc\n1,0,9,1,a\n2,1,9,1,a\n", encoding="utf-8")
    found = uses(read_trace(path))
    assert found
    assert not any(use.is_served for use in found)
