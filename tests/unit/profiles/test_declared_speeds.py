"""Simulations on a cluster whose file declares speeds of virtual GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

import skep

FILE = "nodes: [{gpus: 1, gpu_type: slow, speed: {lm: 0.5, default: 0.25}}, {gpus: 1, gpu_type: full}]\n"
JOBS = "job_id,submit_s,duration_s,gpus,model,gpu_type\na,0,100,1,lm,\nb,0,100,1,lm,\nc,900,100,1,other,slow\n"


@pytest.mark.parametrize("policy", ["fifo", "allox"])
def test_jobs_run_at_the_declared_speeds(tmp_path: Path, policy: str) -> None:
    (tmp_path / "lab.yaml").write_text(FILE)
    (tmp_path / "jobs.csv").write_text(JOBS)
    run = skep.simulate(str(tmp_path / "jobs.csv"), cluster=str(tmp_path / "lab.yaml"), policy=policy)
    ends = {row.job_id: row.finish_s for row in run.run.rows}
    assert sorted((ends["a"], ends["b"])) == [100.0, 200.0]
    assert ends["c"] == 1000.0  # the length of a job is that on the type it names
