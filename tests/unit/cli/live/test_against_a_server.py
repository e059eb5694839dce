"""The command line against a real server with virtual gpus: what the fake one cannot show."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SKEP = [sys.executable, "-m", "skep.cli.main"]
COUNT = "for i in $(seq 1 30); do echo line $i; sleep 0.1; done; exit 7"


class Server:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.env = dict(os.environ) | {"SKEP_URL": ""}
        self.env["SKEP_URL"] = self.up("0")

    def up(self, port: str) -> str:
        said = self.skep("up", "-d", "--cluster", "1x2", "--data", str(self.data), "--port", port)
        found = re.search(r"http://\S+", said.stderr)
        assert found is not None, said.stderr
        return found[0]

    def skep(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SKEP, *args], env=self.env, cwd=self.data.parent, capture_output=True, text=True, timeout=300, check=False
        )

    def pid(self) -> int:
        return int(json.loads((self.data / "server.json").read_text())["pid"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    yield made
    made.skep("down", "--data", str(made.data), "--stop-jobs")


@pytest.mark.slow
def test_a_job_from_its_command_to_its_exit_code(server: Server) -> None:
    done = server.skep(
        "run", "--gpus", "2", "--name", "first", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3"
    )
    assert (done.stdout, done.returncode) == ("0,1\n", 3), done.stderr
    (row,) = json.loads(server.skep("ps", "--all", "-o", "json").stdout)
    wanted = {"id", "name", "state", "vc", "user", "gpus", "priority", "submit_s", "start_s", "finish_s", "reason"}
    assert wanted <= set(row)
    assert (row["name"], row["state"], row["gpus"]) == ("first", "failed", 2)
    assert "exit code 3" in server.skep("explain", "first").stdout.lower()
    assert server.skep("logs", "first").stdout == "0,1\n"
    assert server.skep("wait", "first").returncode == 3
    for command in ("show first", "cluster", "nodes", "vc", "policy", "events", "usage"):
        assert server.skep(*command.split()).returncode == 0, command


@pytest.mark.slow
def test_several_tasks_are_shown_line_by_line(server: Server) -> None:
    """Of a gang, and of tasks that start one by one and are tried again."""
    done = server.skep("run", "--count", "2", "--name", "gang", "--", "bash", "-c", "echo $RANK; echo end")
    expected = ["main-0 | 0", "main-0 | end", "main-1 | 1", "main-1 | end"]
    assert sorted(done.stdout.splitlines()) == expected
    assert server.skep("logs", "gang").stdout.splitlines() == expected
    assert server.skep("logs", "gang", "--task", "main-1", "--tail", "1").stdout == "end\n"
    role = {"count": 2, "retries": 1, "command": "echo $SKEP_LAUNCH; exit $((2 - SKEP_LAUNCH))"}
    loose = json.dumps({"name": "loose", "gang": False, "tasks": {"w": role}})
    (server.data.parent / "loose.yaml").write_text(loose)
    assert server.skep("submit", "loose.yaml").returncode == 0
    followed = server.skep("logs", "-f", "loose").stdout.splitlines()
    assert {"w-0 | 2", "w-1 | 2"} <= set(followed)  # a first try may be over before anybody looks
    assert server.skep("logs", "loose", "--attempt", "1").stdout.splitlines() == ["w-0 | 1", "w-1 | 1"]
    last = [line.split()[1] for line in server.skep("events", "loose", "--last", "1").stdout.splitlines()]
    assert last == ["succeeded"]


@pytest.mark.slow
def test_waiting_holding_and_stopping(server: Server) -> None:
    server.skep("run", "-d", "--gpus", "2", "--name", "long", "--", "sleep", "600")
    server.skep("run", "-d", "--gpus", "1", "--name", "next", "--", "true")
    assert "GPU" in server.skep("explain", "next").stdout
    assert server.skep("hold", "next").returncode == 0
    assert "held" in server.skep("ps").stdout
    assert server.skep("release", "next").returncode == 0
    assert server.skep("stop", "long").stdout == "long asked to stop\n"
    assert server.skep("wait", "long").returncode == 130
    assert server.skep("wait", "next", "--timeout", "300s").returncode == 0


@pytest.mark.slow
def test_a_whole_sweep_is_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "name: try-${lr}\ngroup: rates\nsweep: {lr: [1, 2, 3]}\ngpus: 1\ncommand: sleep ${lr}00\n"
    )
    assert len(server.skep("submit", str(tmp_path / "sweep.yaml")).stdout.split()) == 3
    assert server.skep("stop", "--group", "rates").returncode == 0
    assert server.skep("wait", "try-1", "try-2", "try-3").returncode == 130
    assert server.skep("stop", "--group", "rates").returncode == 2
    assert server.skep("stop").returncode == 2


@pytest.mark.slow
def test_run_goes_on_when_the_server_is_killed_and_started_again(server: Server) -> None:
    line = [*SKEP, "run", "--gpus", "1", "--", "bash", "-c", COUNT]
    talk = server.data / "talk"  # a file: reading two pipes at once would lose what is buffered of the first
    with (
        talk.open("w") as stderr,
        subprocess.Popen(line, env=server.env, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        os.kill(server.pid(), signal.SIGKILL)
        while "lost the server" not in talk.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        server.up(server.env["SKEP_URL"].rpartition(":")[2])
        rest = process.stdout.read()
    assert "".join(first) + rest == "".join(f"line {number}\n" for number in range(1, 31))
    assert process.returncode == 7


@pytest.mark.slow
def test_whoever_asks_twice_reads_nothing_of_what_was_cut_off(tmp_path: Path) -> None:
    command = [*SKEP, "up", "--cluster", "1x2", "--data", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("skep is up" in line for line in process.stderr)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        said = [line for line in process.stderr if not line.startswith("the dashboard")]
        assert said == ["skep is down; no job is running\n"]


@pytest.mark.slow
def test_what_keeps_a_server_behind_from_starting_is_told_with_its_hint(tmp_path: Path) -> None:
    command = [*SKEP, "up", "-d", "--policy", "tiresias", "--cluster", "1x2", "--data", str(tmp_path / "data")]
    said = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 2
    assert (
        said.stderr
        == "error: policy 'tiresias' is not known\n\nhint: did you mean tiresias-l or tiresias-g or themis?\n"
    )


TRAIN = """
from skep import train
job = train.join()
for step in job.steps(20):
    print(f"step {step} of a real job", flush=True)
    job.report(loss=1.0 / (step + 1))
"""


@pytest.mark.slow
def test_what_the_dashboard_shows_of_a_real_job(server: Server) -> None:
    """Its curve, its log, the GPUs it held, and why it was started."""
    from skep.client import Client
    from skep.server.routes.inspect import Matches
    from skep.server.schemas import JobDetail
    from skep.server.shapes import Curve, Decisions, HistorySchema, Map, Overview, Timeline

    (server.data.parent / "train.py").write_text(TRAIN)
    done = server.skep("run", "--gpus", "1", "--name", "curve", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    with Client(server.env["SKEP_URL"]) as client:
        curve = client.curve("curve")
        Curve.model_validate(curve)
        (loss,) = [each for each in curve["series"] if each["key"] == "loss"]
        assert (len(loss["value"]), loss["value"][0], loss["step"]) == (20, 1.0, sorted(loss["step"]))
        found = client.search_logs("curve", "STEP 19 of")
        Matches.model_validate(found)
        assert [match["text"] for match in found["matches"]] == ["step 19 of a real job"]
        (span,) = client.timeline()["spans"]
        assert (span["outcome"], span["held"]) == ("succeeded", [{"node": "n0", "gpus": [0], "milli": 1000}])
        assert client.decisions(job="curve")["decisions"][0]["kind"] == "start"
        job = client.job("curve")
        JobDetail.model_validate(job)
        assert job["history"][0]["held"] == span["held"]
        for shape, answer in (
            (Overview, client.overview()),
            (Map, client.map()),
            (HistorySchema, client.history(by_vc=True)),
            (Timeline, client.timeline()),
            (Decisions, client.decisions()),
        ):
            shape.model_validate(answer)
    assert "start" in server.skep("decisions").stdout
    assert server.skep("history", "--since", "1h").returncode == 0
    assert server.skep("open", "--print").stdout.strip() == server.env["SKEP_URL"]
