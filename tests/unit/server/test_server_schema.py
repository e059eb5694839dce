"""The API against its own description, with the real service and an engine that runs nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_world import JOB, World
from tests.support.engines import NoEngine

from skep.service.live import Live
from skep.service.store import Store


def make_live(folder: Path) -> Live:
    return Live(Store(folder / "skep.db"), lambda live: NoEngine(), time.time, cluster=("1x8", "1x8"), policy="fifo")


# Whether the cluster can ever run a job, and whether a policy has that name, is not a matter of form: a 400 is right.
# So is a 404 if the job that another one needs does not exist.
# Ending the token that asks would refuse all that follows.
# What has no end cannot be checked, and a server that was told to stop cannot be asked more.
SETTINGS = """
[[operations]]
include-path = "/api/v1/events"
parameters = { "query.follow" = false }

[[operations]]
include-path = "/api/v1/jobs/{id}/logs"
parameters = { "query.follow" = false }

[[operations]]
include-path = ["/api/v1/jobs/{id}/changes", "/api/v1/jobs:plan"]
parameters = { "query.within" = 0 }

[[operations]]
include-path = [
    "/api/v1/jobs", "/api/v1/jobs:batch", "/api/v1/jobs:plan",
    "/api/v1/cluster", "/api/v1/policy", "/api/v1/history", "/api/v1/timeline",
    "/api/v1/traces", "/api/v1/studies"
]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409"]

[[operations]]
include-path = "/api/v1/jobs"
include-method = "POST"
parameters = { "query.dry_run" = false }

[[operations]]
include-path = ["/api/v1/tokens/{id}", "/api/v1/tokens/{id}/rotate"]
parameters = { "path.id" = "00000000" }

[[operations]]
include-path = "/api/v1/session"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401"]
checks.ignored_auth.enabled = false

[[operations]]
include-path = ["/api/v1/shutdown", "/api/v1/changes"]
enabled = false
"""


@pytest.mark.slow
@pytest.mark.parametrize(("auth", "examples"), [("none", 10), ("token", 3)])  # the same requests, and who sends them
def test_schemathesis_finds_nothing(tmp_path: Path, auth: str, examples: int) -> None:
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = ["-m", "schemathesis.cli", "--config-file", str(settings), "run", "--seed=1"]
    # A run that revokes the token it works with sees nothing but 401 from then on.
    command += [f"--max-examples={examples}", "--exclude-path-regex=/tokens/"]
    with World(tmp_path, make_live, auth=auth) as world:
        bearer = world.bearer("root", "admin") if auth == "token" else {}
        for _ in range(3):
            world.client.post("/api/v1/jobs", json=JOB, headers=bearer)
        headers = [f"--header=Authorization: {text}" for text in bearer.values()]
        url = f"http://127.0.0.1:{world.port}/openapi.json"
        ran = subprocess.run([sys.executable, *command, *headers, url], cwd=tmp_path, capture_output=True, text=True)
        assert world.client.get("/api/v1/health").status_code == 200
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def test_a_job_that_needs_an_unknown_one_is_answered_as_promised(tmp_path: Path) -> None:
    with World(tmp_path, make_live) as world:
        answer = world.client.post("/api/v1/jobs", json={**JOB, "needs": "nobody"})
        promised = world.client.get("/openapi.json").json()["paths"]["/api/v1/jobs"]["post"]["responses"]
        assert str(answer.status_code) in promised
        assert answer.json()["error"] == "there is no job nobody"


def test_times_of_jobs_as_the_store_has_them(tmp_path: Path) -> None:
    with World(tmp_path, make_live) as world:
        world.submit()
        assert world.live.times(0.0) == []
        assert world.live.last_event(None, 0) == world.live.events(0, None, 100)[-1]["seq"]
        assert world.live.last_event("1", 5) == 0
