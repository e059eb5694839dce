"""Seeded faults between the Kubernetes engine and its API server: `python -m tests.support.kube_faults [--seeds 20]`.

Requests fail before or after they are done, are slow, or are answered with 429 and 500; watches are cut or must list
again; other clients delete pods. Whatever happens, no launch of a job runs beside another, every launch has one end,
and when the faults end all that is left ends too.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.kube_plane import ControlPlane, control_plane
from tests.support.kube_world import KubeWorld, on

from skep.core.actions import Launch, Stop
from skep.core.reports import Exited, LaunchFailed, Started
from skep.engines.kube.api import Api, ApiError, ApiStream, Unreachable
from skep.engines.kube.connection import AnswerHead
from skep.jobs.request import Request, TaskRole

JOBS = "12345"
STEPS = 60


class FaultyApi:
    """Wraps the requests of an `Api`. The Lease is left alone: a server that loses it does nothing any more."""

    def __init__(self, api: Api, seed: int) -> None:
        self.random, self.lock, self.is_on = random.Random(seed), threading.Lock(), True
        self.faults: dict[str, int] = {}
        self.exchange, self.stream = api._exchange, api.stream
        api._exchange, api.stream = self._exchange, self._stream  # type: ignore[method-assign]

    def pick(self, kinds: dict[str, float]) -> str:
        """One of these faults with its probability; empty: none."""
        with self.lock:
            found = self.random.choices([*kinds, ""], [*kinds.values(), 1 - sum(kinds.values())])[0]
            if found and self.is_on:
                self.faults[found] = self.faults.get(found, 0) + 1
            return found if self.is_on else ""

    def _exchange(self, method: str, path: str, content: bytes, kind: str) -> tuple[AnswerHead, bytes]:
        if "/leases" in path:
            return self.exchange(method, path, content, kind)
        fault = self.pick({"before": 0.06, "after": 0.06, "429": 0.04, "500": 0.04, "slow": 0.1})
        if fault in ("429", "500"):
            return AnswerHead(int(fault), {"retry-after": "0.02"}), b"{}"
        if fault == "before":
            raise Unreachable("the test", OSError("not sent"))
        if fault == "slow":
            time.sleep(0.2)
        answer = self.exchange(method, path, content, kind)
        if fault == "after":
            raise Unreachable("the test", OSError("the answer is lost"))
        return answer

    def _stream(self, path: str, **query: Any) -> ApiStream:
        if "watch" in query and self.pick({"410": 0.3}):
            raise ApiError(410, "Expired", "too old resource version")
        return self.stream(path, **query)


class FaultTrial:
    """A small server of its own: it launches and stops jobs, and checks what it is told."""

    def __init__(self, plane: ControlPlane, folder: Path, seed: int) -> None:
        self.world = KubeWorld(plane, folder)
        self.random = random.Random(seed)
        self.world.requests = {
            job_id: Request("job", {"main": TaskRole(2, gpus=1, command="exec sleep 1000")}, grace_s=2.0)
            for job_id in JOBS
        }
        self.launches = dict.fromkeys(JOBS, 0)
        self.wrong: list[str] = []
        self.faulty = FaultyApi(self.world.engine.api, seed)
        self.world.adopt()

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.step()
                self.check()
                time.sleep(0.05)
            self.faulty.is_on = False
            self.settle()
            self.end()
        finally:
            self.world.close()

    def step(self) -> None:
        job_id = self.random.choice(JOBS)
        if self.is_over(job_id):
            self.launches[job_id] += 1
            self.world.do(Launch(job_id, on(0, 1), self.launches[job_id]))
            return
        what = self.random.choice(("stop", "delete", "cut", "wait", "wait"))
        if what == "stop":
            self.world.do(Stop(job_id, "preempted", self.launches[job_id]))
        elif what == "delete":
            self.delete(f"skep-abc-{job_id}-{self.launches[job_id]}-{self.random.randrange(2)}")
        elif what == "cut":
            for watch in self.world.engine.watches:
                watch.cut()

    def delete(self, pod: str) -> None:
        """As another client does."""
        try:
            self.world.api.delete(self.world.api.of("pods", pod), grace_s=self.random.choice((0, 1)))
        except ApiError as error:
            if error.status != 404:
                raise

    def ends(self, job_id: str) -> list[int]:
        told = [report for report in list(self.world.told) if isinstance(report, Exited | LaunchFailed)]
        return [report.launch for report in told if report.job_id == job_id]

    def is_over(self, job_id: str) -> bool:
        return self.launches[job_id] in (0, *self.ends(job_id))

    def check(self) -> None:
        running: dict[str, set[str]] = {}
        for name in self.world.kubelets.running():
            _, _, job_id, launch, _ = name.split("-")
            running.setdefault(job_id, set()).add(launch)
        self.wrong += [f"launches {both} of job {job_id} run" for job_id, both in running.items() if len(both) > 1]

    def settle(self) -> None:
        """Without faults every launch runs whole or has ended."""

        def is_settled() -> bool:
            begun = {(told.job_id, told.launch) for told in list(self.world.told) if isinstance(told, Started)}
            return all(self.is_over(job_id) or (job_id, self.launches[job_id]) in begun for job_id in JOBS)

        if not self.world.until(is_settled):
            self.wrong.append(f"neither running nor over: {[each for each in JOBS if not self.is_over(each)]}")

    def end(self) -> None:
        for job_id in JOBS:
            if not self.is_over(job_id):
                self.world.do(Stop(job_id, "preempted", self.launches[job_id]))
        if not self.world.until(lambda: all(map(self.is_over, JOBS))):
            self.wrong.append(f"not over: {[each for each in JOBS if not self.is_over(each)]}")
        if not self.world.until(lambda: not self.world.raw_pods() and not self.world.kubelets.running()):
            self.wrong += [f"left: {brief(pod)}" for pod in self.world.raw_pods()]
        for job_id in JOBS:
            if self.ends(job_id) != list(range(1, self.launches[job_id] + 1)):
                self.wrong.append(f"job {job_id}: {self.launches[job_id]} launches, ends of {self.ends(job_id)}")


def brief(pod: dict[str, Any]) -> str:
    about, node = pod["metadata"], pod["spec"].get("nodeName")
    return f"{about['name']} on {node}, {pod['status']['phase']}, deleted {about.get('deletionTimestamp')}"


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--seeds", type=int, default=20)
    given.add_argument("--first", type=int, default=0)
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        for seed in range(asked.first, asked.first + asked.seeds):
            (place := Path(folder) / str(seed)).mkdir()
            trial = FaultTrial(plane, place, seed)
            trial.run(STEPS)
            print(f"seed {seed}: {sum(trial.launches.values())} launches, faults {trial.faulty.faults}", flush=True)
            if trial.wrong:
                raise SystemExit("\n".join(trial.wrong))


if __name__ == "__main__":
    main()
