"""The engines that must keep the contract, each with what a test needs to play with its jobs."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.builders import job as trace_job
from tests.support.engines import FakeEngine, Machine
from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane, free_port
from tests.support.sim_engine import SimEngine, SimWorld

from skep.core.actions import Action, named
from skep.core.cluster import Cluster, NodeSpec
from skep.core.ports import Engine, Wanted
from skep.core.reports import Report
from skep.engines.kube.engine import KubeEngine
from skep.engines.kube.settings import KubeSettings
from skep.engines.local import launches
from skep.engines.local.engine import LocalEngine
from skep.engines.local.start import ShimProcess
from skep.engines.sim.engine import Simulator
from skep.jobs.request import Request, TaskRole

WAIT_S = 120.0
"""For what comes at once on an idle machine: only that it comes matters."""
JOBS = ("1", "2", "3")
WORK_S = 1000.0


class Subject:
    """An engine, its world, and what it has told. Jobs `1`, `2` and `3` run until they are told otherwise."""

    engine: Engine
    can_be_killed = True
    can_break = True
    is_apart = False
    """True if its launches are not in the data folder of the store: then it must know whose they are."""

    def __init__(self) -> None:
        self.told: list[Report] = []
        self.cluster = Cluster([NodeSpec("n0", 4), NodeSpec("n1", 4)])
        self.epoch = 0

    def hear(self, reports: list[Report]) -> None:
        self.told += reports

    # The server's side

    def adopt(
        self, *actions: Action, known: set[tuple[str, int]] | None = None, store: str = "mine", is_new: bool = False
    ) -> None:
        """As a server that starts. What it asks for it knows."""
        asked = {(action.job_id, action.launch) for action in actions}
        self.epoch = self.engine.last_epoch() + 1
        wanted = Wanted(named(actions, self.cluster), asked if known is None else known, set(), store, is_new)
        self.engine.adopt(self.epoch, 0.0, wanted)

    def do(self, *actions: Action) -> None:
        self.engine.execute(self.epoch, 0.0, named(actions, self.cluster))

    def of(self, kind: type, job_id: str = "1") -> list[Report]:
        return [report for report in self.told if isinstance(report, kind) and getattr(report, "job_id", "") == job_id]

    def wait(self, kind: type, job_id: str = "1", *, count: int = 1):  # type: ignore[no-untyped-def]
        """The last of `count` reports of this kind."""
        assert self.until(lambda: len(self.of(kind, job_id)) >= count), f"no {kind.__name__} of {job_id}: {self.told}"
        return self.of(kind, job_id)[count - 1]

    # The jobs' side

    def crash(self) -> None:
        """The engine is gone, the jobs are not; another engine finds them."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> bool:
        """Let time pass until this holds."""
        raise NotImplementedError

    def pass_time(self) -> None:
        """Long enough for a job that goes on to get somewhere."""
        raise NotImplementedError

    def done(self, job_id: str) -> float:
        """How far a job is."""
        raise NotImplementedError

    def goes_on(self, job_id: str = "1") -> bool:
        before = self.done(job_id)
        return self.until(lambda: self.done(job_id) > before)

    def stands(self, job_id: str = "1") -> bool:
        before = self.done(job_id)
        self.pass_time()
        return self.done(job_id) == before

    def finish(self, job_id: str = "1") -> None:
        """It ends by itself, and well."""
        raise NotImplementedError

    def kill(self, job_id: str = "1") -> None:
        """It dies."""
        raise NotImplementedError

    def make_stubborn(self, job_id: str = "1") -> None:
        """It will not leave when it is asked to."""
        raise NotImplementedError

    def break_start(self, job_id: str = "1") -> contextlib.AbstractContextManager[None]:
        """Its second task cannot be started."""
        raise NotImplementedError

    def there(self) -> set[tuple[str, int]]:
        """Job and number of every launch of which anything runs."""
        raise NotImplementedError

    def starts(self) -> list[tuple[str, int]]:
        """Of every launch that was really begun."""
        raise NotImplementedError

    def print(self, text: str, job_id: str = "1") -> None:
        raise NotImplementedError

    def train(self, job_id: str = "1") -> None:
        """It uses `skep.train`."""
        raise NotImplementedError

    def settings(self, job_id: str = "1") -> dict[str, object]:
        """What it was told by `Tune`."""
        raise NotImplementedError

    def join_node(self, name: str, labels: dict[str, str] | None = None) -> None:
        """There is another node of 4 GPUs. Where nodes are only names, nothing has to be done."""

    def change_node(self, name: str, *, is_cordoned: bool) -> None:
        raise NotImplementedError

    def remove_node(self, name: str) -> None:
        raise NotImplementedError

    def start_foreign(self, node: str, gpus: int) -> None:
        """A tenant that is not a job of ours takes GPUs there; 0: it goes."""
        raise NotImplementedError

    def delete_tasks(self, job_id: str = "1") -> None:
        """Somebody else removes what runs for a job."""
        raise NotImplementedError

    def close(self) -> None: ...


class Fake(Subject):
    is_apart = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.machine = Machine()
        self.engine: FakeEngine = FakeEngine(self.hear, self.cluster, self.machine)
        self.count = 0.0

    def crash(self) -> None:
        self.engine = FakeEngine(self.hear, self.cluster, self.machine)

    def until(self, condition: Callable[[], bool]) -> bool:
        return condition() or condition()

    def pass_time(self) -> None: ...

    def done(self, job_id: str) -> float:
        run = self.machine.runs[job_id]
        self.count += run.end is None and not run.is_suspended
        return self.count

    def finish(self, job_id: str = "1") -> None:
        self.engine.end(job_id)

    def kill(self, job_id: str = "1") -> None:
        self.engine.end(job_id, 137)

    def make_stubborn(self, job_id: str = "1") -> None:
        self.machine.stubborn.add(job_id)

    @contextlib.contextmanager
    def break_start(self, job_id: str = "1") -> Iterator[None]:
        self.machine.broken[job_id] = "main-1"
        yield
        del self.machine.broken[job_id]

    def there(self) -> set[tuple[str, int]]:
        return {(job_id, run.launch) for job_id, run in self.machine.runs.items() if run.end is None}

    def starts(self) -> list[tuple[str, int]]:
        return self.machine.starts

    def print(self, text: str, job_id: str = "1") -> None:
        self.engine.print(job_id, text)

    def train(self, job_id: str = "1") -> None:
        self.machine.said[job_id] = {"step": 7}

    def settings(self, job_id: str = "1") -> dict[str, object]:
        return dict(self.machine.settings.get(job_id, {}))


class Simulated(Subject):
    can_be_killed = can_break = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        jobs = [trace_job(1, work=WORK_S, id=job_id) for job_id in JOBS]
        self.world = SimWorld(Simulator(jobs, self.cluster, restart_s=5.0))
        self.engine: SimEngine = SimEngine(self.world, self.hear)

    def crash(self) -> None:
        self.engine = SimEngine(self.world, self.hear)

    def until(self, condition: Callable[[], bool]) -> bool:
        for _ in range(100):
            if condition():
                return True
            self.engine.advance(1.0)
        return condition()

    def pass_time(self) -> None:
        self.engine.advance(30.0)

    def done(self, job_id: str) -> float:
        return self.world.simulator.tasks[job_id].work_at(self.world.now_s)

    def finish(self, job_id: str = "1") -> None:
        while (job_id, self.world.launches[job_id]) in self.there():
            self.engine.advance(WORK_S)

    def make_stubborn(self, job_id: str = "1") -> None:
        pytest.skip("simulated jobs always leave when they are asked to")

    def there(self) -> set[tuple[str, int]]:
        running = {task.job.spec.id for task in self.world.simulator.running.values()}
        return {(job_id, self.world.launches[job_id]) for job_id in running}

    def starts(self) -> list[tuple[str, int]]:
        return self.world.starts


LOOP = """
exec 2> /dev/null  # where the shell says which of its commands was terminated
trap '%s' TERM
cd $SKEP_CHECKPOINT_DIR
echo $SKEP_LAUNCH >> starts-$SKEP_TASK_INDEX
while [ ! -e finish ]; do
    echo >> ticks
    [ ! -e say ] || { mv say saying; cat saying; }
    sleep 0.02
done
"""
TRAIN = """
import os, time
from pathlib import Path
import skep.train
job = skep.train.join(every_s=None)
for step in job.steps(10**6):
    time.sleep(0.02)
    Path(os.environ["SKEP_CHECKPOINT_DIR"], "settings").write_text(repr(job.settings))
    job.report(loss=1.0)
"""


class Local(Subject):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.news = threading.Condition()
        role = TaskRole(command=LOOP % "exit 143")
        self.requests = {job_id: Request("job", {"main": role}, grace_s=30.0) for job_id in JOBS}
        self._open()

    def _open(self) -> None:
        self.engine: LocalEngine = LocalEngine(self.folder, self.cluster, self.request_of, self.hear)

    def request_of(self, job_id: str) -> tuple[Request, None]:
        return self.requests[job_id], None

    def crash(self) -> None:
        self.engine.close()
        self._open()

    def until(self, condition: Callable[[], bool]) -> bool:
        by_s = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > by_s:
                return False
            time.sleep(0.01)
        return True

    def pass_time(self) -> None:
        time.sleep(0.3)

    def _file(self, job_id: str, name: str) -> Path:
        return self.folder / "jobs" / job_id / "checkpoint" / name

    def _lines(self, job_id: str, name: str) -> list[str]:
        try:
            return self._file(job_id, name).read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []

    def done(self, job_id: str) -> float:
        return len(self._lines(job_id, "ticks"))

    def finish(self, job_id: str = "1") -> None:
        self._file(job_id, "finish").touch()

    def kill(self, job_id: str = "1") -> None:
        launch = max(self.engine.folder.launches(job_id))
        os.kill(int((self.engine.folder.task(job_id, launch, "main-0") / "main").read_text()), signal.SIGKILL)

    def make_stubborn(self, job_id: str = "1") -> None:
        self.requests[job_id] = Request("job", {"main": TaskRole(command=LOOP % "")}, grace_s=0.3)

    @contextlib.contextmanager
    def break_start(self, job_id: str = "1") -> Iterator[None]:
        start = launches.start_shim

        def broken(task: Path, *, goes_at_once: bool = False) -> ShimProcess:
            if task.name == "main-1":
                raise OSError(errno.EAGAIN, "no more processes")
            return start(task, goes_at_once=goes_at_once)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launches, "start_shim", broken)
            yield

    def there(self) -> set[tuple[str, int]]:
        shims = [path for path in self.folder.glob("jobs/*/[0-9]*/*/pid") if is_shim(path.read_text())]
        return {(path.parts[-4], int(path.parts[-3])) for path in shims}

    def starts(self) -> list[tuple[str, int]]:
        return [(job_id, int(line)) for job_id in JOBS for line in self._lines(job_id, "starts-0")]

    def print(self, text: str, job_id: str = "1") -> None:
        aside = self._file(job_id, "say.new")
        aside.write_text(text)
        aside.rename(self._file(job_id, "say"))

    def train(self, job_id: str = "1") -> None:
        role = TaskRole(argv=(sys.executable, "-c", TRAIN))
        self.requests[job_id] = Request("job", {"main": role}, grace_s=30.0)

    def settings(self, job_id: str = "1") -> dict[str, object]:
        try:
            return dict(eval(self._file(job_id, "settings").read_text() or "{}"))
        except FileNotFoundError:
            return {}

    def close(self) -> None:
        for job_id in JOBS:
            self.requests[job_id] = Request("job", {"main": TaskRole(command="true")}, grace_s=0.0)
        self.adopt(known=set())
        for run in list(self.engine.runs.by_job.values()):
            for task in run.tasks:
                task.send(self.epoch, "kill")
        assert self.until(lambda: not self.there())
        self.engine.close()


class Kube(Local):
    """Pods of a real API server, run by hollow kubelets."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubelets: HollowKubelets | None = None
        namespace = plane.namespace()
        self.settings_of_kube = KubeSettings(
            str(plane.kubeconfig("admin", namespace)),
            gpus="visible",
            image="test",
            checkpoints={"hostPath": {"path": str(folder / "checkpoints")}},
            reports=f"http://127.0.0.1:{free_port()}",
        )
        (folder / "pods").mkdir()
        super().__init__(folder)
        self.kubelets = HollowKubelets(plane.api, folder / "pods", {"n0": 4, "n1": 4}, plane.folder / "pki", namespace)

    def _open(self) -> None:
        self.engine: KubeEngine = KubeEngine(
            self.folder, self.cluster, self.request_of, self.hear, self.settings_of_kube, "abc"
        )

    def _file(self, job_id: str, name: str) -> Path:
        return self.folder / "checkpoints" / "abc" / job_id / name

    def kill(self, job_id: str = "1") -> None:
        pod = next(name for name in self.kubelets.running() if f"-{job_id}-" in name)
        self.kubelets.signal(pod, signal.SIGKILL)

    @contextlib.contextmanager
    def break_start(self, job_id: str = "1") -> Iterator[None]:
        self.kubelets.broken.add("main-1")
        yield
        self.kubelets.broken.clear()

    def join_node(self, name: str, labels: dict[str, str] | None = None) -> None:
        self.kubelets.join(name, 4)
        self.plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels or {}}})

    def change_node(self, name: str, *, is_cordoned: bool) -> None:
        self.plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": is_cordoned}})

    def remove_node(self, name: str) -> None:
        self.plane.api.delete(f"/api/v1/nodes/{name}")

    def start_foreign(self, node: str, gpus: int) -> None:
        path = f"{self.plane.api.of('pods')}/foreign-{node}"
        if not gpus:
            self.plane.api.delete(path, grace_s=0)
            return
        amount = {"nvidia.com/gpu": str(gpus)}
        container = {"name": "main", "image": "test", "resources": {"limits": amount, "requests": amount}}
        pod = {"metadata": {"name": f"foreign-{node}"}, "spec": {"nodeName": node, "containers": [container]}}
        self.plane.api.post(self.plane.api.of("pods"), pod)

    def delete_tasks(self, job_id: str = "1") -> None:
        for name in self.kubelets.running():
            if f"-{job_id}-" in name:
                path = self.engine.api.of("pods", name)
                self.plane.api.patch(path, {"metadata": {"finalizers": None}})
                self.plane.api.delete(path, grace_s=0)

    def there(self) -> set[tuple[str, int]]:
        parts = [name.split("-") for name in self.kubelets.running()]
        return {(words[2], int(words[3])) for words in parts}

    def close(self) -> None:
        self.engine.close()
        if self.kubelets is not None:
            self.kubelets.close()


def example(name: str) -> ModuleType:
    """A module of `examples/`, which is no package."""
    file = Path(__file__).parents[2] / "examples" / name
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


plain = example("engine/plain.py")


class Plain(Local):
    """The engine of `examples/engine`: subprocesses that end with it."""

    def _open(self) -> None:
        self.engine = plain.PlainEngine(self.folder, self.cluster, lambda job_id: self.requests[job_id], self.hear)

    def crash(self) -> None:
        pytest.skip("the plain engine does not recover from a crash")

    def _file(self, job_id: str, name: str) -> Path:
        return self.folder / job_id / name

    @contextlib.contextmanager
    def break_start(self, job_id: str = "1") -> Iterator[None]:
        popen = subprocess.Popen

        def broken(*args, env, **options):  # type: ignore[no-untyped-def]
            if env["SKEP_TASK_INDEX"] == "1":
                raise OSError(errno.EAGAIN, "no more processes")
            return popen(*args, env=env, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain.subprocess, "Popen", broken)
            yield

    def there(self) -> set[tuple[str, int]]:
        runs = list(self.engine.runs.values())
        return {(run.job_id, run.launch) for run in runs if any(task.poll() is None for task in run.tasks)}

    def close(self) -> None:
        self.engine.close()
        assert self.until(lambda: all(run.end is not None for run in self.engine.runs.values()))


def is_shim(pid: str) -> bool:
    """A shim is there as long as anything of its task is."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"skep-shim")
    except OSError:
        return False


SUBJECTS = {"fake": Fake, "simulator": Simulated, "local": Local, "plain": Plain, "kubernetes": Kube}
