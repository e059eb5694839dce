"""The load that Skep puts on Kubernetes: `python -m bench.kube [--nodes 500] [--gangs 125] [--restart]`.

Gangs of 8 pods are submitted to a server whose nodes are hollow. Measured are the CPU time of the server's process for
each pod, and the time until all are bound: against a bare loop of 16 threads that only creates and binds the same pods,
and against kube-scheduler, which binds pods that exist, in the same run. `--restart`: how long a server that is started
again needs until its first decision, with these nodes and running pods, and how much memory it uses.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import yaml
from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane, assets

from skep.clusters.discovered import with_found
from skep.core.allocation import Allocation, Slice
from skep.core.ports import Engine
from skep.engines.kube.api import Api
from skep.engines.kube.credentials import of_file
from skep.engines.kube.engine import KubeEngine, capabilities_of, find_nodes
from skep.engines.kube.objects import KubePod
from skep.engines.kube.pods import PodMaker
from skep.engines.kube.reports import ReportTokens
from skep.engines.kube.settings import KubeSettings
from skep.engines.local.begin import place_tasks
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.store import Store

GANG, THREADS = 8, 16
CPU_MS, WALL, RESTART_S, MEMORY_MIB = 2.0, 1.5, 15.0, 1024
REQUEST = Request("load", {"main": TaskRole(GANG, gpus=1, command="sleep 1000", image="test")}, user="ann", grace_s=1.0)


def hollow(kubeconfig: str, folder: str, nodes: int, pki: str, namespace: str, ready: object) -> None:
    """In a process of its own: its CPU time is not the server's."""
    api = Api(of_file(Path(kubeconfig), "", ""))
    HollowKubelets(api, Path(folder), {f"n{each:04}": 8 for each in range(nodes)}, Path(pki), namespace, runs=False)
    ready.set()  # type: ignore[attr-defined]
    threading.Event().wait()


class PodList(msgspec.Struct, frozen=True):
    items: list[KubePod]


class Load:
    def __init__(self, plane: ControlPlane, folder: Path, nodes: int) -> None:
        self.plane, self.folder, self.nodes = plane, folder, nodes
        self.namespace = plane.namespace()
        self.kubeconfig = plane.kubeconfig("admin", self.namespace)
        self.api = Api(of_file(self.kubeconfig, "", ""))
        self.settings = KubeSettings(str(self.kubeconfig), image="test")
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        words = (str(self.kubeconfig), str(folder), nodes, str(plane.folder / "pki"), self.namespace, ready)
        self.kubelets = context.Process(target=hollow, args=words, daemon=True)
        self.kubelets.start()
        ready.wait()

    def live(self, policy: str = "fifo") -> Live:
        (self.folder / "data").mkdir(exist_ok=True)
        store = Store(self.folder / "data" / "skep.db")
        text = with_found("nodes: discovered\n", find_nodes(self.settings))

        def engine(live: Live) -> Engine:
            return KubeEngine(
                self.folder / "data",
                live.writer.state.cluster.blank(),
                live.request_of,
                live.tell,
                self.settings,
                "abc",
            )

        return Live(
            store,
            engine,
            time.time,
            cluster=("bench", text) if store.log_seq == 0 else None,
            policy=policy,
            capabilities=capabilities_of(self.settings),
        )

    def bare(self, gangs: int) -> float:
        """Seconds for creating and binding the same pods, and nothing else."""
        maker = PodMaker(self.settings, "bare", self.namespace, ReportTokens(self.folder))
        request_of = [self._gang(maker, number) for number in range(gangs)]
        pods = [pair for gang in request_of for pair in gang]

        def one(pair: tuple[dict[str, object], str]) -> None:
            pod, node = pair
            name = pod["metadata"]["name"]  # type: ignore[index]
            self.api.post(self.api.of("pods"), pod)
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            self.api.post(f"{self.api.of('pods', name)}/binding", {"metadata": {"name": name}, "target": target})

        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one, pods))
        return time.perf_counter() - began

    def _gang(self, maker: PodMaker, number: int) -> list[tuple[dict[str, object], str]]:
        where = Allocation((Slice(0, gpus=(1 << GANG) - 1, tasks=GANG),), GANG)
        places = place_tasks(REQUEST, None, where, {0: f"n{self.nodes - 1 - number % self.nodes:04}"})
        gang = maker.gang(REQUEST, f"bare{number}", 1, places)
        for pod in gang.pods:
            pod["metadata"].pop("finalizers")
        return list(zip(gang.pods, gang.nodes, strict=True))

    def scheduler(self, gangs: int) -> float | None:
        """Seconds that kube-scheduler takes to bind as many pods that exist; None without its program."""
        program = self.plane.binaries / "kube-scheduler"
        if not program.exists():
            return None
        maker = PodMaker(self.settings, "kube", self.namespace, ReportTokens(self.folder))
        for number in range(gangs):
            for pod, _ in self._gang(maker, number):
                pod["metadata"]["name"] += f"-k{number}"  # type: ignore[index]
                pod["metadata"]["labels"]["skep/store"] = "kube"  # type: ignore[index]
                pod["spec"] |= {"schedulerName": "default-scheduler"}  # type: ignore[operator]
                self.api.post(self.api.of("pods"), pod)
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"}
        config["clientConnection"] = {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 1000}  # type: ignore[assignment]
        config["leaderElection"] = {"leaderElect": False}  # type: ignore[assignment]
        (self.folder / "scheduler.yaml").write_text(yaml.safe_dump(config))
        with (self.folder / "scheduler.log").open("wb") as log:
            words = [str(program), f"--config={self.folder / 'scheduler.yaml'}", "--port=0"]
            process = subprocess.Popen(words, stdout=log, stderr=log)
        began = 0.0
        try:
            while True:
                text = self.api.get(self.api.of("pods"), labelSelector="skep/store=kube")
                bound = sum(bool(pod.spec.node_name) for pod in msgspec.json.decode(text, type=PodList).items)
                began = began or (time.perf_counter() if bound else 0.0)
                if bound == gangs * GANG:
                    return time.perf_counter() - began
                if process.poll() is not None:
                    sys.exit((self.folder / "scheduler.log").read_text()[-2000:])
                time.sleep(0.5)  # each look is a list of all these pods, which keeps the API server busy
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.kubelets.kill()
        self.kubelets.join()
        self.api.close()


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.25)


def running(live: Live) -> int:
    return live.writer.jobs_by_state().get("running", 0)


def is_bound(live: Live, gangs: int) -> bool:
    """Whether all is done that the bare loop does; that pods run is up to their kubelets."""
    assert isinstance(live.engine, KubeEngine)
    runs = list(live.engine.runs.by_job.values())
    return len(runs) == gangs and not any(run.is_starting for run in runs)


def submit(live: Live, gangs: int) -> None:
    live.submit([REQUEST] * gangs, "ann")


def load(world: Load, gangs: int) -> bool:
    live = world.live()
    cpu, began = time.process_time(), time.perf_counter()
    submit(live, gangs)
    until(lambda: is_bound(live, gangs))
    wall = time.perf_counter() - began
    until(lambda: running(live) == gangs)
    cpu = time.process_time() - cpu
    live.close()
    bare = world.bare(gangs)
    pods = gangs * GANG
    print(f"{pods} pods on {world.nodes} nodes: {cpu / pods * 1000:.2f} ms CPU a pod (at most {CPU_MS})")
    print(f"wall {wall:.1f} s, bare loop {bare:.1f} s: {wall / bare:.2f} times (at most {WALL})")
    kube = world.scheduler(gangs)
    print("kube-scheduler is not there" if kube is None else f"kube-scheduler binds as many in {kube:.1f} s")
    return cpu / pods * 1000 <= CPU_MS and wall / bare <= WALL


def restart(world: Load, gangs: int) -> bool:
    """In a process of its own, for its memory."""
    live = world.live()
    submit(live, gangs)
    until(lambda: running(live) == gangs)
    live.close()
    context = multiprocessing.get_context("spawn")
    words = (str(world.kubeconfig), str(world.folder), world.nodes)
    process = context.Process(target=begin_again, args=words)
    process.start()
    process.join()
    return process.exitcode == 0


def begin_again(kubeconfig: str, folder: str, nodes: int) -> None:
    world = Load.__new__(Load)
    world.folder, world.nodes, world.settings = Path(folder), nodes, KubeSettings(kubeconfig, image="test")
    began = time.perf_counter()
    live = world.live()
    before = live.writer.state.decision_count
    submit(live, 1)
    until(lambda: live.writer.state.decision_count > before)
    wall = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    jobs = running(live)
    print(f"{nodes} nodes, {jobs * GANG} pods: first decision after {wall:.1f} s (at most {RESTART_S:g})")
    print(f"{memory} MiB (at most {MEMORY_MIB})")
    live.close()
    sys.exit(0 if wall <= RESTART_S and memory <= MEMORY_MIB else 1)


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--nodes", type=int, default=500)
    given.add_argument("--gangs", type=int, default=125)
    given.add_argument("--restart", action="store_true")
    asked = given.parse_args()
    binaries = assets()
    if binaries is None:
        sys.exit("Kubernetes binaries are missing; `scripts/kube-assets` makes them")
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(binaries, Path(folder))
        try:
            plane.start()
            world = Load(plane, Path(folder), asked.nodes)
            is_good = (restart if asked.restart else load)(world, asked.gangs)
            world.close()
        finally:
            plane.stop()
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
