"""`skep up --engine kubernetes` as one uses it: a real server, a real API server, hollow kubelets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane, free_port
from tests.support.kube_world import until

from skep.engines.kube.api import Api
from skep.engines.kube.credentials import of_file

pytestmark = pytest.mark.slow
WAIT_S = 120.0
SECONDS_OF_WORK = 3
KILLS = 3


class Place:
    """A namespace with nodes, and a server for it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.folder, self.namespace, self.url = folder, plane.namespace(), f"http://127.0.0.1:{free_port()}"
        self.kubeconfig = plane.kubeconfig("admin", self.namespace)
        self.api = Api(of_file(self.kubeconfig, "", ""))
        (folder / "pods").mkdir()
        nodes = {"n0": 4, "n1": 4}
        self.kubelets = HollowKubelets(self.api, folder / "pods", nodes, plane.folder / "pki", self.namespace)
        (folder / "skep.yaml").write_text("kubernetes: {gpus: visible, image: base}\n")

    def up(self) -> None:
        words = ["--kubeconfig", str(self.kubeconfig), "--config", str(self.folder / "skep.yaml")]
        words += ["--data", str(self.folder / "data"), "--port", self.url.rpartition(":")[2]]
        self.skep("up", "--engine", "kubernetes", *words, "-d")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skep.cli.main", *words],
            env={**os.environ, "SKEP_URL": self.url},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def skep(self, *words: str, status: int | None = 0) -> str:
        ran = self.command(*words)
        assert status in (None, ran.returncode), (words, ran.stdout, ran.stderr)
        assert "Traceback" not in ran.stderr
        return ran.stderr if status else ran.stdout

    def kill(self) -> None:
        os.kill(json.loads((self.folder / "data" / "server.json").read_text())["pid"], signal.SIGKILL)

    def close(self) -> None:
        self.skep("down", "--data", str(self.folder / "data"))
        self.kubelets.close()
        self.api.close()


@pytest.fixture
def place(plane: ControlPlane, tmp_path: Path) -> Iterator[Place]:
    made = Place(plane, tmp_path)
    try:
        made.up()
        yield made
    finally:
        made.close()


def test_jobs_run_as_pods_and_survive_the_server(place: Place) -> None:
    """Killed again and again; every launch is one start, and no job is lost."""
    assert "n0" in place.skep("nodes")
    script = f"echo begin $SKEP_LAUNCH; sleep {SECONDS_OF_WORK}; echo end"
    jobs = [place.skep("run", "--gpus", "2", "-d", "--", "bash", "-c", script).split()[-1] for _ in range(5)]
    for _ in range(KILLS):
        place.kill()
        time.sleep(0.5)
        place.up()
    place.skep("wait", *jobs)
    states = {row["id"]: row["state"] for row in json.loads(place.skep("ps", "--all", "-o", "json"))}
    assert [states[job] for job in jobs] == ["succeeded"] * len(jobs)
    for job in jobs[:2]:
        assert place.skep("logs", job) == "begin 1\nend\n"
    assert sorted(place.kubelets.starts) == sorted(set(place.kubelets.starts))
    assert len(place.kubelets.starts) == len(jobs)


def test_commands_run_in_the_pod_of_a_task(place: Place) -> None:
    """From the command line through the server and the API server."""
    job = place.skep("run", "-d", "--", "bash", "-c", "sleep 1000").split()[-1]
    script = "echo here $SKEP_JOB_ID; echo no >&2; exit 3"
    assert until(lambda: "running" in place.skep("ps"))
    ran = place.command("exec", job, "--", "bash", "-c", script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, f"here {job}\n", "no\n")
    many = place.command("exec", job, "--", "head", "-c", "300000", "/dev/zero")
    assert (many.returncode, len(many.stdout)) == (0, 300_000)
    assert "no-such" in place.skep("exec", job, "--", "no-such-program", status=126)
    place.kubelets.logs.is_deaf = True
    said = place.skep("exec", job, "--", "true", status=126)
    assert len(said.splitlines()) == 1
    place.skep("stop", job)
    place.skep("wait", job, status=None)
    assert "does not run now" in place.skep("exec", job, "--", "true", status=2)


def test_another_server_on_the_namespace_is_refused_in_one_line(place: Place, tmp_path: Path) -> None:
    words = ["up", "--engine", "kubernetes", "--kubeconfig", str(place.kubeconfig), "--data", str(tmp_path / "other")]
    said = place.skep(*words, "--port", str(free_port()), status=2)
    assert "belongs to another Skep store" in said
