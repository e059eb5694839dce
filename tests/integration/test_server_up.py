"""`skep up`, `down`, `token`, `backup` as one uses them: real processes, real jobs."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.service.turn import LATE_S

pytestmark = pytest.mark.slow
WAIT_S = 120.0
NO_REUSE = httpx.Limits(max_keepalive_connections=0)
"""A connection to a server that has gone is no use with the next one."""


def skep(*words: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command; its words, and that it ended as expected."""
    command = [sys.executable, "-m", "skep.cli.main", *words]
    env = {**{key: value for key, value in os.environ.items() if not key.startswith("SKEP_")}, **environment}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == status, (words, ran.stdout, ran.stderr)
    assert "Traceback" not in ran.stderr
    return ran


def until(is_so: Callable[[], Any]) -> Any:
    by_s = time.monotonic() + WAIT_S
    while not (found := is_so()):
        assert time.monotonic() < by_s, "waited in vain"
        time.sleep(0.05)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Place:
    """A data folder and the server on it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1", timeout=WAIT_S, trust_env=False, limits=NO_REUSE
        )

    def up(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return skep("up", "-d", "--data", str(self.data), "--port", str(self.port), *words, status=status)

    def down(self, *words: str) -> subprocess.CompletedProcess[str]:
        return skep("down", "--data", str(self.data), *words)

    @property
    def pid(self) -> int:
        import json

        return int(json.loads((self.data / "server.json").read_text())["pid"])

    def submit(self, command: str, **fields: Any) -> str:
        answer = self.http.post("/jobs", json={"name": "job", "command": command, **fields})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def state(self, job_id: str) -> str:
        return str(self.http.get(f"/jobs/{job_id}").json()["state"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "data")
    yield made
    if (made.data / "server.json").exists():
        made.down("--stop-jobs")
    made.http.close()


def test_a_job_from_start_to_end(place: Place) -> None:
    said = place.up().stderr
    assert "virtual cluster 1x8" in said
    assert f"skep is up at http://127.0.0.1:{place.port}" in said
    job_id = place.submit("for i in 1 2 3; do echo line $i; sleep 0.1; done; exit 3", gpus=1)
    assert place.http.get(f"/jobs/{job_id}/logs?follow=true").text == "line 1\nline 2\nline 3\n"
    assert until(lambda: place.state(job_id) == "failed")
    assert place.http.get(f"/jobs/{job_id}").json()["history"][0]["code"] == 3
    assert "skep is down" in place.down().stderr
    assert "no server runs" in place.down().stderr


def test_jobs_survive_the_end_of_the_server(place: Place) -> None:
    place.up("--cluster", "2x4")
    go = place.data / "go"
    job_id = place.submit(f"until [ -e {go} ]; do sleep 0.05; done; echo done", gpus=1)
    until(lambda: place.state(job_id) == "running")
    os.kill(place.pid, signal.SIGTERM)
    until(lambda: not (place.data / "server.json").exists())
    assert "skep is down; 1 job runs on, and the next `skep up` adopts it" in (place.data / "server.log").read_text()
    place.up()
    assert place.state(job_id) == "running"
    go.touch()
    until(lambda: place.state(job_id) == "succeeded")
    assert place.http.get(f"/jobs/{job_id}/logs").text == "done\n"
    assert place.http.get("/cluster").json()["text"] == "2x4"


def test_a_killed_server_is_followed_by_another(place: Place) -> None:
    place.up()
    job_id = place.submit("sleep 1; exit 7", gpus=1)
    until(lambda: place.state(job_id) == "running")
    os.kill(place.pid, signal.SIGKILL)
    (kept,) = until(lambda: list(place.data.glob("jobs/*/1/*/exit.json")))
    time.sleep(LATE_S + 2)
    place.up()
    until(lambda: place.state(job_id) == "failed")
    found = place.http.get(f"/jobs/{job_id}").json()
    assert found["attempts"] == 1
    assert found["history"][0]["code"] == 7
    for end_s in (found["finish_s"], found["history"][0]["end_s"]):
        assert abs(end_s - kept.stat().st_mtime) < LATE_S, "it ended when it ended, not when that was heard"


def test_down_with_jobs(place: Place) -> None:
    place.up()
    marker = place.data / "left"
    job_id = place.submit(f"trap 'touch {marker}; exit 0' TERM; echo on; while true; do sleep 0.05; done", gpus=1)
    place.submit("sleep 100", gpus=8)
    until(lambda: place.state(job_id) == "running" and place.http.get(f"/jobs/{job_id}/logs").text)
    place.down("--stop-jobs")
    assert marker.exists()
    db = sqlite3.connect(place.data / "skep.db")
    assert db.execute("SELECT state FROM jobs").fetchall() == [("stopped",), ("stopped",)]
    db.close()


def test_a_second_server_is_refused(place: Place) -> None:
    place.up()
    said = skep("up", "--data", str(place.data), "--port", str(free_port()), status=2).stderr
    assert said.startswith(
        f"error: {place.data} is in use by another server (pid {place.pid}, http://127.0.0.1:{place.port})"
    )
    said = skep("up", "--data", str(place.data / "other"), "--port", str(place.port), status=2).stderr
    assert said.startswith(f"error: cannot listen on 127.0.0.1 port {place.port}")
    assert place.up(status=2).stderr.startswith("error: cannot listen")
    assert place.http.get("/health").status_code == 200


def test_what_cannot_start_says_why_in_a_line(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    config = tmp_path / "skep.yaml"
    config.write_text("port: 1\nprot: 2\n")
    for words, message in (
        (("--data", str(file)), "the data folder"),
        (("--data", str(file / "below")), "the data folder"),
        (("--host", "0.0.0.0", "--auth", "none"), "needs --auth token"),
        (("--host", "no such host"), "cannot listen"),
        (("--cluster", "nowhere.yaml"), "no such file"),
        (("--cluster", "8y8"), "8y8"),
        (("--policy", "fofi"), "did you mean fifo"),
        (("--config", str(config)), "did you mean port"),
        (("--port", "99999"), "99999"),
    ):
        said = skep("up", "--data", str(place.data), "--port", str(place.port), *words, status=2).stderr
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, said
        assert message in said


def test_a_damaged_store_is_left_as_it_is(place: Place) -> None:
    place.data.mkdir(mode=0o700)
    (place.data / "skep.db").write_bytes(b"this is no database" * 100)
    said = place.up(status=2).stderr
    assert "cannot be used as a store" in said
    assert (place.data / "skep.db").read_bytes() == b"this is no database" * 100


def test_a_config_file(place: Place, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("nodes:\n  - {name: a, gpus: 2}\n")
    config = tmp_path / "skep.yaml"
    config.write_text("cluster: lab.yaml\npolicy: sjf\nauth: token\nkeep_days: 7\nnames: [skep.example]\n")
    said = place.up("--config", str(config), "--policy", "srtf").stderr
    assert "there is no token yet" in said
    secret = skep("token", "create", "--user", "ann", "--role", "admin", "--data", str(place.data)).stdout.strip()
    assert place.http.get("/jobs").status_code == 401
    place.http.headers["Authorization"] = f"Bearer {secret}"
    assert place.http.get("/policy", headers={"Host": "skep.example"}).json()["policy"] == "srtf"
    assert [node["name"] for node in place.http.get("/nodes").json()] == ["a"]
    assert place.http.post("/jobs", json={"name": "a", "command": "true"}).json()["user"] == "ann"
    token = skep("token", "list", "--data", str(place.data), "-o", "json").stdout
    assert '"ann"' in token
    assert secret not in token
    skep("token", "revoke", secret.split("_")[1], "--data", str(place.data))
    assert place.http.get("/jobs").status_code == 401
    skep("token", "revoke", "00000000", "--data", str(place.data), status=2)
    kept = b"".join(path.read_bytes() for path in place.data.glob("*") if path.is_file() and path.name != "reports")
    assert secret.encode() not in kept
    place.down()  # without a token: by a signal


def test_a_backup_can_be_started_from(place: Place, tmp_path: Path) -> None:
    place.up("--cluster", "1x2")
    job_id = place.submit("true", gpus=1)
    until(lambda: place.state(job_id) == "succeeded")
    copy = tmp_path / "copy.db"
    url = f"http://127.0.0.1:{place.port}"
    skep("backup", str(copy), SKEP_URL=url)
    assert "already exists" in skep("backup", str(copy), "--url", url, status=2).stderr
    place.down()
    other = Place(tmp_path / "other")
    other.data.mkdir(mode=0o700)
    copy.rename(other.data / "skep.db")
    other.up()
    assert other.state(job_id) == "succeeded"
    assert other.http.get("/cluster").json()["text"] == "1x2"
    other.down()
    other.http.close()


def test_what_is_stored_wins_over_the_config_file_and_flags_over_both(place: Place, tmp_path: Path) -> None:
    lab, lab2, own, config = (tmp_path / name for name in ("lab.yaml", "lab2.yaml", "mine.py", "skep.yaml"))
    lab.write_text("nodes: [{name: a, gpus: 1}]")
    lab2.write_text("nodes: [{name: a, gpus: 1}, {name: b, gpus: 1}]")
    own.write_text(
        "from skep.policies import Order\nclass Mine(Order):\n    def key(self, job, now_s): return job.seq\n"
    )
    config.write_text("cluster: lab.yaml\npolicy: srtf\n")
    place.up("--config", str(config))
    skep("cluster", "apply", str(lab2), "--yes", "--url", f"http://127.0.0.1:{place.port}")
    assert place.http.put("/policy", json={"policy": f"{own}:Mine"}).status_code == 200
    jobs = [place.submit("sleep 100", gpus=1) for _ in range(2)]
    until(lambda: [place.state(job) for job in jobs] == ["running", "running"])
    place.down()
    own.unlink()
    said = place.up("--config", str(config)).stderr
    assert "the stored one (lab2.yaml) differs and is used" in said
    assert f"the stored one ({own}:Mine) is used" in said
    assert "config" in {event["kind"] for event in place.http.get("/events?follow=false").json()}
    assert place.http.get("/cluster").json()["text"] == lab2.read_text()
    place.down()
    said = place.up("--config", str(config), "--cluster", str(lab), "--policy", "fifo").stderr
    assert "the stored one" not in said
    assert place.http.get("/policy").json()["policy"] == "fifo"
    until(lambda: [place.state(job) for job in jobs] == ["running", "pending"])
    place.down("--stop-jobs")


def test_down_waits_for_the_process_and_restore_holds(place: Place, tmp_path: Path) -> None:
    place.up()
    url, copy = f"http://127.0.0.1:{place.port}", tmp_path / "copy.db"
    first = place.submit("true", gpus=1)
    until(lambda: place.state(first) == "succeeded")
    skep("backup", str(copy), "--url", url)
    second = place.submit("true", gpus=1)
    assert "is in use by another server" in skep("restore", str(copy), "--data", str(place.data), status=2).stderr
    pid = place.pid
    skep("down", "--url", url)
    about = Path(f"/proc/{pid}/stat")
    assert not about.exists() or about.read_text().rpartition(")")[2].split()[0] == "Z"  # nobody may have waited for it
    assert "skep-before-" in skep("restore", str(copy), "--data", str(place.data)).stderr
    place.up()
    assert place.state(first) == "succeeded"
    assert place.http.get(f"/jobs/{second}").status_code == 404
    place.down()


def test_down_with_jobs_that_do_not_end_says_so_and_the_server_stays(place: Place) -> None:
    place.up()
    job_id = place.submit("trap '' TERM; echo on; while true; do sleep 0.1; done", gpus=1, grace_s=100)
    until(lambda: place.http.get(f"/jobs/{job_id}/logs").text)
    said = skep("down", "--data", str(place.data), "--stop-jobs", "--timeout", "1", status=2).stderr
    assert f"after 1 s these have not ended: job {job_id} (stopping); the server stays" in said
    assert place.state(job_id) == "stopping"
    place.down()
    for shim in place.data.glob("jobs/*/*/*/pid"):
        os.kill(int(shim.read_text()), signal.SIGKILL)
    place.up()
    until(lambda: place.state(job_id) == "stopped")
    place.down()


def test_streams_do_not_hold_up_the_end(place: Place) -> None:
    place.up()
    job_id = place.submit("sleep 60", gpus=1)
    until(lambda: place.state(job_id) == "running")
    follow = f"/jobs/{job_id}/logs?follow=true"
    with place.http.stream("GET", "/events") as events, place.http.stream("GET", follow) as log:
        parts = events.iter_raw()
        next(parts)
        os.kill(place.pid, signal.SIGTERM)
        for _ in (*parts, *log.iter_raw()):
            pass  # until they end as streams should: it is an error if they have to be cut off
        until(lambda: not (place.data / "server.json").exists())
    place.up()
    place.down("--stop-jobs")


def test_a_full_disk_loses_nothing_that_was_acknowledged(place: Place) -> None:
    command = [sys.executable, "-m", "skep.cli.main", "up", "--data", str(place.data), "--port", str(place.port)]

    def no_file_beyond_400_kb() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=no_file_beyond_400_kb)
    until(lambda: (place.data / "server.json").exists())
    first = place.submit("sleep 60", gpus=8)
    kept = [first]
    while (answer := place.http.post("/jobs", json={"name": "more", "command": "true", "gpus": 8})).status_code == 201:
        kept.append(answer.json()["id"])
    assert answer.status_code == 503
    assert "cannot write" in answer.json()["error"]
    said = server.communicate(timeout=WAIT_S)[1]
    assert server.returncode != 0
    assert "the server had to stop" in said
    place.up()
    assert place.state(first) in ("launching", "running")
    listed = [job["id"] for job in place.http.get("/jobs?limit=1000").json()["jobs"]]
    assert set(kept) <= set(listed)


def test_idle_connections_cost_nobody_a_file(place: Place) -> None:
    """With 1,100 connections and 1,024 files allowed, jobs start, end as they end, and are listed and stopped."""
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if ours < 1500:
        pytest.skip("needs 1,500 files of its own")
    words = ["up", "-d", "--data", str(place.data), "--port", str(place.port), "--cluster", "1x8"]
    limited = ["bash", "-c", 'ulimit -n 1024; exec "$@"', "-", sys.executable, "-m", "skep.cli.main", *words]
    subprocess.run(limited, check=True, capture_output=True, timeout=WAIT_S)
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(socket.create_connection(("127.0.0.1", place.port), timeout=WAIT_S))
        ids = [place.submit(f"exit {number % 2}", gpus=1) for number in range(16)]
        long = place.submit("sleep 600", gpus=1)
        until(lambda: place.state(long) == "running")
        assert place.http.get(f"/jobs/{ids[1]}/logs").status_code == 200
        for number, job_id in enumerate(ids):
            until(lambda job_id=job_id: place.state(job_id) in ("succeeded", "failed"))
            job = place.http.get(f"/jobs/{job_id}").json()
            assert (job["attempts"], job["history"][0]["code"]) == (1, number % 2)
        assert place.http.post(f"/jobs/{long}/stop").status_code == 200
        until(lambda: place.state(long) == "stopped")
        files = len(os.listdir(f"/proc/{place.pid}/fd"))
        assert files < 800
