"""Weights of users and VCs, and where they and the weights of jobs come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.core.weights import EQUAL, Weights, read_weights
from skep.jobs.core import to_core
from skep.jobs.read import read_requests
from skep.server.config import read_config
from skep.traces.read import read_trace


def test_who_is_not_named_has_weight_1() -> None:
    weights = read_weights("users.ann=2,vcs.prod=0.5")
    assert weights == Weights({"ann": 2.0}, {"prod": 0.5})
    assert (weights.of_user("ann"), weights.of_user("bob"), weights.of_vc("prod")) == (2.0, 1.0, 0.5)
    assert read_weights("") == EQUAL


@pytest.mark.parametrize(
    "text", ["ann=2", "users.=1", "users.ann", "users.ann=0", "users.ann=nan", "vcs.a=-1", "x.a=1"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="weights"):
        read_weights(text)


def test_a_config_has_weights(tmp_path: Path) -> None:
    file = tmp_path / "skep.yaml"
    file.write_text("weights: {users: {ann: 2}, vcs: {prod: 3}}")
    assert read_config(str(file))["weights"] == Weights({"ann": 2.0}, {"prod": 3.0})
    file.write_text("weights: {users: {ann: 0}}")
    with pytest.raises(InputError, match="weights"):
        read_config(str(file))


def test_a_trace_has_weights_of_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_s,duration_s,gpus,weight,share_weight\na,0,5,1,2.5,\nb,0,5,1,,3\n")
    one, other = (job.spec for job in read_trace(str(file)).jobs)
    assert (one.weight, one.share) == (2.5, None)
    assert other.weight == 1.0
    assert other.share is not None
    assert other.share.weight == 3
    file.write_text("job_id,submit_s,duration_s,gpus,weight\na,0,5,1,0\n")
    with pytest.raises(InputError, match="weight is 0"):
        read_trace(str(file))


def test_a_job_file_has_a_weight() -> None:
    (request,) = read_requests("name: a\ncommand: ls\nweight: 2.5").requests
    assert [spec.weight for spec in to_core(request, "1")] == [2.5]
    with pytest.raises(InputError, match="above 0"):
        read_requests("name: a\ncommand: ls\nweight: 0")
