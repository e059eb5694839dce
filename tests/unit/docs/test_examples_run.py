"""What `examples/` shows runs as its README says."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from skep.cli.simulate import simulate

POLICY = Path(__file__).parents[3] / "examples" / "policy" / "aged.py"


def test_the_policy_lets_a_job_that_has_waited_long_pass_small_ones(tmp_path: Path) -> None:
    rows = "a,0,100,2\nlarge,1,10,2\nsmall,2,10,1\nsmaller,3,10,1\n"
    (tmp_path / "jobs.csv").write_text(f"job_id,submit_s,duration_s,gpus\n{rows}")

    def starts(wait_s: int) -> list[str]:
        out = tmp_path / f"out-{wait_s}"
        spec = f"{POLICY}:Aged:wait_s={wait_s}"
        command = [str(tmp_path / "jobs.csv"), "--cluster", "1x2", "--policy", spec, "--out", str(out)]
        assert CliRunner().invoke(simulate, command).exit_code == 0
        (csv,) = out.glob("*/jobs.csv")
        found = [line.split(",") for line in csv.read_text().splitlines()[1:]]
        return [line[0] for line in sorted(found, key=lambda line: float(line[4]))]

    assert starts(1000) == ["a", "small", "smaller", "large"]
    assert starts(50) == ["a", "large", "small", "smaller"]
