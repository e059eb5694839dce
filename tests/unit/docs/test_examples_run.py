"""What `examples/` shows runs as its README says."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.simulate import simulate
from skep.core.actions import Launch, Stop
from skep.core.allocation import Allocation, Slice
from skep.core.cluster import Cluster, NodeSpec
from skep.core.ports import StaleEpoch, Wanted
from skep.core.reports import Exited, GivenSeat, Report, Started
from skep.jobs.request import Request, TaskRole

EXAMPLES = Path(__file__).parents[3] / "examples"
POLICY = EXAMPLES / "policy" / "aged.py"


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


def test_the_engine_runs_tasks_and_refuses_a_server_that_was_replaced(tmp_path: Path) -> None:
    """The contract suite has the rest; there a replaced server is tried together with a crash."""
    told: list[Report] = []
    request = Request("job", {"main": TaskRole(command="echo $SKEP_NODE $CUDA_VISIBLE_DEVICES > seen")})
    make = runpy.run_path(str(EXAMPLES / "engine" / "plain.py"))["PlainEngine"]
    engine = make(tmp_path, Cluster([NodeSpec("n0", 4)]), lambda job_id: request, told.extend)
    engine.adopt(1, 0.0, Wanted([Launch("1", Allocation((Slice(0, 0b110),), 2), 1, ("n0",))]))
    engine.adopt(2, 0.0, Wanted())
    with pytest.raises(StaleEpoch):
        engine.execute(1, 0.0, [Stop("1", "preempted", 1)])
    by_s = time.monotonic() + 60
    while len(told) < 2 and time.monotonic() < by_s:
        time.sleep(0.01)
    assert told[0] == Started("1", 1, (GivenSeat("n0", (1, 2)),))
    assert isinstance(told[1], Exited)
    assert (told[1].code, told[1].was_stopped) == (0, False)
    assert (tmp_path / "1" / "seen").read_text() == "n0 1,2\n"
