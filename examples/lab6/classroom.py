"""What the live experiments share: a server of their own, jobs from the files, a timeline, and what is expected."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

import skep

HERE = Path(__file__).parent
POLICY = "fifo:borrow=never"
"""As HiveD: only work of priority oppo borrows. By default any job may that its own VC has no room for."""
WITHIN_S = 60.0


class Unexpected(Exception):
    """Something did not happen as the lab says."""


@contextlib.contextmanager
def classroom(cluster: str) -> Iterator[Classroom]:
    """A server in a folder that goes with it, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="skep-lab6-") as folder:
        data = Path(folder) / "data"
        try:
            options = {"--cluster": HERE / cluster, "--policy": POLICY, "--data": data, "--port": 0}
            run_skep("up", "-d", *(str(word) for option in options.items() for word in option))
            with skep.Client(json.loads((data / "server.json").read_text())["url"]) as client:
                yield Classroom(client)
        finally:
            run_skep("down", "--stop-jobs", "--data", str(data))


def run_skep(*words: str) -> None:
    """What is set for another server is not for this one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    command = [sys.executable, "-m", "skep.cli.main", *words]
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    if ran.returncode:
        raise Unexpected(f"skep {words[0]}: {ran.stderr.strip()}")


class Classroom:
    def __init__(self, client: skep.Client) -> None:
        self.client = client
        self.names: dict[str, str] = {}
        """Of each job, by its id."""
        self.seen: list[dict[str, Any]] = []
        """Events, in the order in which they happened."""

    def submit(self, file: str, name: str, **role: Any) -> str:
        """A job file under another name; `role` replaces values of its role, as one would in an editor. The id."""
        job = yaml.safe_load((HERE / "jobs" / file).read_text())
        job["name"] = name
        job["taskRoles"]["train"] |= role
        found: str = self.client.submit(job)["jobs"][0]["id"]
        self.names[found] = name
        self.look()
        return found

    def look(self) -> None:
        """Print what has happened since the last look."""
        for event in self.client.events(after=self.seen[-1]["seq"] if self.seen else 0):
            self.seen.append(event)
            if event["job_id"]:
                at_s = event["at_s"] - self.seen[0]["at_s"]
                print(f"  {at_s:5.1f} s  {self.names[event['job_id']]:<12} {event['kind']:<10} {event['text']}")

    def until(self, what: str, is_so: Callable[[], Any]) -> None:
        by_s = time.monotonic() + WITHIN_S
        while not is_so():
            self.look()
            if time.monotonic() > by_s:
                raise Unexpected(f"{what}: waited {WITHIN_S:g} s in vain")
            time.sleep(0.05)
        self.look()

    def until_runs(self, job: str, attempt: int = 1) -> None:
        self.until(f"{self.names[job]} runs", lambda: self.count(job, "started") >= attempt)

    def until_saved(self, job: str, epoch: int) -> None:
        wanted = f"epoch {epoch} is saved"
        self.until(f"{self.names[job]}: {wanted}", lambda: wanted in "".join(self.client.logs(job)))

    def until_all_end(self) -> None:
        for job in self.names:
            self.until(f"{self.names[job]} ends", lambda job=job: self.state(job) not in ACTIVE)
            if self.state(job) != "succeeded":
                raise Unexpected(f"{self.names[job]} succeeds")

    def state(self, job: str) -> str:
        return str(self.client.job(job)["state"])

    def count(self, job: str, kind: str) -> int:
        return sum(event["job_id"] == job and event["kind"] == kind for event in self.seen)

    def order(self, kind: str) -> list[str]:
        """The names of the jobs of which this was said, in that order."""
        return [self.names[event["job_id"]] for event in self.seen if event["kind"] == kind and event["job_id"]]

    def runs(self, job: str) -> list[dict[str, Any]]:
        """Its attempts: `task`, `nodes`, `start_s`, `end_s`, `outcome`."""
        return list(self.client.job(job)["history"])

    def used(self) -> dict[str, int]:
        """Gpus in use, by node."""
        return {node["name"]: node["used"] for node in self.client.nodes()}

    def expect(self, what: str, is_so: bool) -> None:
        if not is_so:
            raise Unexpected(what)
        print(f"           ok: {what}")


ACTIVE = ("pending", "launching", "running", "stopping")
