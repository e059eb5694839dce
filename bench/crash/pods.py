"""Faults of a cluster under load: `python -m bench.crash.pods [--faults 50] [--seed 0] [--kinds server,api-away]`.

A real server and a real API server; the pods of hollow kubelets are processes of this machine, which write into a
ledger. Kinds: `server` (`kill -9`), `api-away` (30 s), `node-silent` (90 s, and back), `two-servers` (one is stopped by
SIGSTOP, another takes over with a copy of its store, the first continues). No launch of a job runs beside another
except on a node that is declared unreachable, no part of a gang runs alone for longer than 30 s, no job is lost, and
everything ends when the faults end.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from bench.crash.load import Client, Made
from bench.crash.server import WAIT_S, Server
from bench.crash.trial import Seen, judge, wait_for_end
from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane, control_plane

from skep.engines.kube.api import Api
from skep.engines.kube.credentials import of_file

RATE_PER_S = 0.7
PARTIAL_S = 30.0
LOOK_S = 0.1
ONCE = {"server", "api-away"}
"""Faults after which every task has run just once, if the policy preempts nothing."""


class FaultTimes(msgspec.Struct, frozen=True):
    away_s: float = 30.0
    silent_s: float = 90.0
    unreachable_s: float = 60.0


SHORT = FaultTimes(away_s=12.0, silent_s=8.0, unreachable_s=3.0)
"""Away for longer than a server may act without its Lease; silent for longer than a node may be."""


class KubeServer(Server):
    """`skep up --engine kubernetes`. Its object stays the same when another process takes over."""

    def __init__(self, data: Path, kubeconfig: Path, policy: str, unreachable_s: float) -> None:
        super().__init__(data)
        config = data.with_suffix(".yaml")
        config.write_text(f"kubernetes: {{gpus: visible, image: base, unreachable_s: {unreachable_s}}}\n")
        self.options = ["--engine", "kubernetes", "--kubeconfig", str(kubeconfig), "--config", str(config)]
        self.options += ["--policy", policy]
        self.gate = threading.Lock()
        """Held while a job is submitted: what a server that was replaced accepts is in no store that counts."""

    def copy(self, data: Path) -> subprocess.Popen[bytes]:
        """Stop the process as it is, and go on with a copy of its store. Returns the one that was stopped."""
        before, gone = self.process, Server(data)
        assert before is not None
        before.send_signal(signal.SIGSTOP)
        shutil.copytree(self.data, data)
        self.data, self.port, self.url = data, gone.port, gone.url
        self.start()
        return before


class GatedClient(Client):
    server: KubeServer

    def _submit(self, key: str, chance: random.Random) -> Made:
        with self.server.gate:
            return super()._submit(key, chance)


class GangWatch(threading.Thread):
    """Looks at the processes of the hollow kubelets all the time."""

    def __init__(self, kubelets: HollowKubelets) -> None:
        super().__init__(daemon=True)
        self.kubelets = kubelets
        self.wrong: list[str] = []
        self.begun: dict[tuple[str, str], set[str]] = {}
        self.alone_s: Counter[tuple[str, str]] = Counter()
        """For how long only some tasks of a launch had begun. Times of faults that keep a server from acting do not
        count."""
        self.is_excused = False
        self.closing = threading.Event()

    def run(self) -> None:
        while not self.closing.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        launches: dict[str, set[str]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for task in self.kubelets.alive():
            job_id, launch, name = task.env["SKEP_TASK"].split("/")
            self.begun.setdefault((job_id, launch), set()).add(name)
            sizes[job_id, launch] = int(task.env["WORLD_SIZE"])
            if task.node not in self.kubelets.silent:
                launches.setdefault(job_id, set()).add(launch)
        self.wrong += [f"launches {both} of job {job_id} run" for job_id, both in launches.items() if len(both) > 1]
        for which, size in sizes.items():
            if len(self.begun[which]) < size and not self.is_excused:
                self.alone_s[which] += LOOK_S  # type: ignore[assignment]
        self.wrong += [f"part of gang {which} runs alone" for which, s in self.alone_s.items() if s > PARTIAL_S]


class PodScene:
    """A server, its API server and its nodes, and a seeded chance."""

    def __init__(self, plane: ControlPlane, folder: Path, seed: int, times: FaultTimes, policy: str) -> None:
        self.plane, self.folder, self.times, self.chance = plane, folder, times, random.Random(seed)
        namespace = plane.namespace()
        kubeconfig = plane.kubeconfig("admin", namespace)
        self.api = Api(of_file(kubeconfig, "", ""))
        for name in ("data", "pods"):
            (folder / name).mkdir()
        nodes = {f"n{each}": 4 for each in range(3)}
        self.kubelets = HollowKubelets(self.api, folder / "pods", nodes, plane.folder / "pki", namespace)
        self.server = KubeServer(folder / "data", kubeconfig, policy, times.unreachable_s)
        self.watch = GangWatch(self.kubelets)
        self.slowest_restart_s = 0.0
        self.servers = 1

    def start(self) -> None:
        self.slowest_restart_s = max(self.slowest_restart_s, self.server.start())

    def close(self) -> None:
        self.watch.closing.set()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.kill()
        self.kubelets.close()
        self.api.close()


def server(scene: PodScene) -> None:
    scene.server.kill()
    scene.start()


def api_away(scene: PodScene) -> None:
    scene.watch.is_excused = True
    scene.plane.stop_server()
    time.sleep(scene.times.away_s)
    scene.plane.start_server()
    scene.watch.is_excused = False


def node_silent(scene: PodScene) -> None:
    name = scene.chance.choice(sorted(scene.kubelets.nodes))
    scene.kubelets.silence(name)
    time.sleep(scene.times.silent_s)
    scene.kubelets.hear(name)


def two_servers(scene: PodScene) -> None:
    with scene.server.gate:
        scene.servers += 1
        scene.watch.is_excused = True
        before = scene.server.copy(scene.folder / f"data-{scene.servers}")
        scene.watch.is_excused = False
        before.send_signal(signal.SIGCONT)
    code = before.wait(WAIT_S)
    assert code != 0, "a server that was replaced ended as if nothing had happened"


KINDS: dict[str, Callable[[PodScene], None]] = {
    "server": server,
    "api-away": api_away,
    "node-silent": node_silent,
    "two-servers": two_servers,
}


def run_pod_trial(
    plane: ControlPlane,
    folder: Path,
    faults: list[str],
    seed: int,
    times: FaultTimes,
    *,
    policy: str = "fifo:walk=skip",
    say: bool = False,
) -> Seen:
    """`faults` happen in this order."""
    scene = PodScene(plane, folder, seed, times, policy)
    ledger, stopping = folder / "ledger", threading.Event()
    ledger.touch()
    try:
        scene.start()
        them = [GatedClient(scene.server, ledger, each, stopping, longest_s=4.0, pause_s=3.0) for each in range(2)]
        for thread in (scene.watch, *them):
            thread.start()
        for number, kind in enumerate(faults):
            time.sleep(scene.chance.expovariate(RATE_PER_S))
            KINDS[kind](scene)
            if say:
                print(f"\r{number + 1} of {len(faults)} faults, {kind:12}", end="", file=sys.stderr)
        stopping.set()
        for client in them:
            client.join(WAIT_S)
            assert not client.is_alive(), "a submission is not answered"
        wait_for_end(scene.server)
        check_end(scene)
        scene.server.stop()
        made = {key: value for client in them for key, value in client.made.items()}
        is_once = set(faults) <= ONCE and policy.startswith("fifo")
        launches = judge(scene.server.data, ledger, made, is_once=is_once)
        return Seen(Counter(faults), len(made), launches, scene.slowest_restart_s)
    finally:
        scene.close()


def check_end(scene: PodScene) -> None:
    """Nothing is left, and nothing was wrong on the way."""
    end_s = time.monotonic() + WAIT_S
    while left := [*scene.kubelets.running(), *pods_left(scene.api)]:
        assert time.monotonic() < end_s, f"left: {left}"
        time.sleep(0.2)
    assert scene.watch.is_alive(), "nobody looks"
    assert not scene.watch.wrong, scene.watch.wrong[:5]


def pods_left(api: Api) -> list[str]:
    items = msgspec.json.decode(api.get(api.of("pods")))["items"]
    return [pod["metadata"]["name"] for pod in items]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--faults", type=int, default=50)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--kinds", default="server", help=f"of {', '.join(KINDS)}, between commas")
    given.add_argument("--policy", default="fifo:walk=skip")
    given.add_argument("--short", action="store_true", help="away for 12 s, silent for 8 s, lost after 3 s")
    asked = given.parse_args()
    faults = random.Random(asked.seed).choices(asked.kinds.split(","), k=asked.faults)
    with tempfile.TemporaryDirectory() as name, control_plane(Path(name)) as plane:
        (place := Path(name) / "trial").mkdir()
        times = SHORT if asked.short else FaultTimes()
        seen = run_pod_trial(plane, place, faults, asked.seed, times, policy=asked.policy, say=True)
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(seen.faults.items()))
    print(f"\n{done}: {seen.jobs} jobs with {seen.launches} starts, none lost, stuck or beside another")
    print(f"slowest restart: {seen.slowest_restart_s:.2f} s until it answered")


if __name__ == "__main__":
    main()
