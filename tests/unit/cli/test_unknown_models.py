"""A profile that names none of the trace's models is said, as it would change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.main import skep

PROFILE = "models:\n  resnet50: {types: {v100: 1.0, k80: 0.3}}\n"


@pytest.mark.parametrize(
    ("model", "said"),
    [("resnet50", ""), ("vgg16", "the trace has vgg16; the profile has resnet50"), ("", "its jobs name none")],
)
def test_it_is_said_before_the_run(tmp_path: Path, model: str, said: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"job_id,submit_s,duration_s,gpus,model\na,0,9,1,{model}\n")
    (tmp_path / "speeds.yaml").write_text(PROFILE)
    words = [str(tmp_path / "jobs.csv"), "--cluster", "1x1:v100", "--policy", "fifo", "--json"]
    found = CliRunner().invoke(skep, ["simulate", *words, "--profile", str(tmp_path / "speeds.yaml")])
    assert found.exit_code == 0, found.output
    assert said in found.stderr
    assert bool(said) == ("names none of the models" in found.stderr)
