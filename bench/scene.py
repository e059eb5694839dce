"""A small cluster at work, for pictures and for trying the dashboard: `python -m bench.scene` keeps one up.

Real jobs of a real `skep up` on virtual GPUs: training that reports its loss, a sweep, a preempted job, a failed one,
one that waits and can say why, borrowed GPUs, a shared one, a drained node.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
from bench.crash import Server

from skep.server.tokens import Tokens

CLUSTER = """\
name: hive
nodes:
  - {count: 4, name: a, gpus: 8, gpu_type: v100, rack: r1}
  - {count: 4, name: b, gpus: 8, gpu_type: v100, rack: r2}
vcs:
  research: 3 nodes of v100
  vision: 2 nodes of v100
  prod: 2 nodes of v100
  guests:
"""
SMALL = """\
name: small
nodes:
  - {count: 2, name: n, gpus: 4}
vcs:
  default: 1 node
  other: 1 node
"""
POLICY = "tiresias-l:queues=60"
TRAIN = """\
import math, sys, time
from skep import train

rate, steps, step_s = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
job = train.join()
for step in job.steps(steps):
    time.sleep(step_s)
    loss = 0.2 + 2.1 * math.exp(-step * rate) + 0.05 * math.sin(step * 1.7) * math.exp(-step * rate)
    job.report(loss=loss, samples=256, accuracy=1 - loss / 2.6)
    print(f"step {step} of {steps}: loss {loss:.4f}", flush=True)
"""
PATH = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
WAIT_S = 120.0
NO_REUSE = httpx.Limits(max_keepalive_connections=0)
"""A connection to a server that has gone is no use with the next one."""


class Scene:
    def __init__(self, server: Server, folder: Path, headers: dict[str, str]) -> None:
        self.server = server
        self.address = server.url.removesuffix("/api/v1")
        self.script = folder / "train.py"
        self.script.write_text(TRAIN)
        self.client = httpx.Client(
            base_url=server.url, timeout=WAIT_S, trust_env=False, headers=headers, limits=NO_REUSE
        )

    def train(self, name: str, *, rate: float = 0.03, steps: int = 4000, step_s: float = 0.4, **fields: Any) -> str:
        return self.submit(name, self.command(str(rate), steps=steps, step_s=step_s), **fields)

    def command(self, rate: str, *, steps: int = 4000, step_s: float = 0.4) -> str:
        """A training that reports its loss; the larger `rate`, the faster that falls."""
        return f"python {self.script.name} {rate} {steps} {step_s}"

    def submit(
        self,
        name: str,
        command: str,
        *,
        user: str = "ann",
        vc: str = "default",
        priority: int = 10,
        tags: Any = (),
        sweep: Any = None,
        **role: Any,
    ) -> str:
        """Fields of the role are those of its tasks."""
        body = {"name": name, "vc": vc, "priority": priority, "tags": list(tags)}
        if self.script.name in command:
            body["workdir"] = str(self.script.parent)
        body["tasks"] = {"worker": {"command": command, "env": {"PATH": PATH}, **role}}
        if sweep:
            body["sweep"] = sweep
        answer = self.client.post("/jobs", json=body, headers={"X-Skep-User": user})
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def job(self, ref: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/jobs/{ref}").json()
        return found

    def wait(self, ref: str, is_so: Callable[[dict[str, Any]], Any]) -> None:
        until(lambda: is_so(self.job(ref)), f"job {ref}")

    def play(self) -> None:
        """Everything that can be seen, in an order in which it comes about."""
        failed = self.submit("preprocess", "echo reading shards; python -c 'import shard_reader'", vc="vision", gpus=1)
        borrower = self.train("explore", vc="guests", gpus=8, priority=-1, user="gil")
        old = self.train("resnet-50", rate=0.01, vc="research", count=2, gpus=8, user="bea")
        self.train("detector", vc="vision", gpus=8, user="cyd", rate=0.02)
        for part in range(2):
            self.train(f"notebook-{part}", vc="vision", gpus=1, gpu_milli=500, user="cyd", step_s=0.8)
        self.train("ranker", vc="prod", gpus=8, priority=100, user="dov", rate=0.05)
        sweep = {"rate": [0.005, 0.02, 0.06, 0.12]}
        self.submit("tune-${rate}", self.command("${rate}"), vc="prod", gpus=1, user="dov", sweep=sweep, tags=["sweep"])
        words = "for i in $(seq 900); do echo batch $i done; sleep 1; done"
        self.submit("embed", words, vc="research", count=4, gpus=1, user="eva")
        self.wait(failed, lambda job: job["state"] == "failed")
        for ref in (borrower, old):
            self.wait(ref, lambda job: (job["progress"] or {}).get("step", 0) > 3)
        self.client.patch("/nodes/b3", json={"state": "drained"})
        fresh = self.train("bert", vc="research", count=2, gpus=8, rate=0.04)
        self.train("too-wide", vc="research", count=3, gpus=8, user="eva", tags=["later"])
        self.train("ranker-2", vc="prod", gpus=8, user="dov")
        self.wait(fresh, lambda job: job["state"] in ("pending", "running"))
        for number in range(6):
            self.submit(f"eval-{number}", f"sleep {2 + number}", vc="research", gpus=1, user="bea")


def until(is_so: Callable[[], Any], what: str) -> Any:
    by_s = time.monotonic() + WAIT_S
    while not (found := is_so()):
        if time.monotonic() > by_s:
            raise RuntimeError(f"{what}: not within {WAIT_S:g} s")
        time.sleep(0.2)
    return found


@contextmanager
def scene(cluster: str = CLUSTER, policy: str = POLICY, *, needs_token: bool = False) -> Iterator[Scene]:
    """Up, with nothing on it yet; gone with its jobs at the end."""
    with tempfile.TemporaryDirectory(prefix="skep-scene-") as name:
        folder = Path(name)
        (folder / "hive.yaml").write_text(cluster)
        server = Server(folder / "data", str(folder / "hive.yaml"), policy)
        headers = {}
        if needs_token:
            server.options += ["--auth", "token"]
            headers["Authorization"] = f"Bearer {make_token(server.data, 'root', 'admin')}"
        server.start()
        stage = Scene(server, folder, headers)
        try:
            yield stage
        finally:
            stage.client.post("/shutdown", json={"stop_jobs": True})
            stage.client.close()
            assert server.process is not None
            server.process.wait(WAIT_S)


def make_token(data: Path, user: str, role: str, *vcs: str) -> str:
    with closing(Tokens(data)) as tokens:
        return tokens.create(user, role, vcs)[1]


def main() -> None:
    with scene() as stage:
        stage.play()
        print(f"{stage.address}; Ctrl-C ends it", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
