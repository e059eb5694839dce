"""The beginning of a launch: seats, the folders of its tasks and their devices; `launches.py` then starts the shims."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import msgspec

from skep.core.actions import Launch, Move
from skep.core.allocation import Seat
from skep.core.cluster import Allocation
from skep.core.errors import InputError
from skep.core.model import GroupRef
from skep.core.share import MIG, MIG_PROFILES
from skep.engines.local.accounts import Account, Accounts, give, make_passage
from skep.engines.local.cgroups import Cgroups, ControlGroup
from skep.engines.local.containers import (
    ContainerFile,
    container_file,
    inner_env,
    name_of,
    run_command,
    runtime_env,
    write_files,
)
from skep.engines.local.criu import Freezer, criu_problem
from skep.engines.local.disk import remove_folder
from skep.engines.local.folder import FILES_VERSION, LOG_BYTES, LOG_FILES, Folder, LaunchRecord, TaskRecord, safe_name
from skep.engines.local.gpus import find_gpus, find_mig_instances
from skep.files.untrusted import STARTED_WITH
from skep.jobs.env import Folders, TaskPlace, command_line, task_env
from skep.jobs.request import UNLIMITED, LimitRules, Request

MPS = "mps"
BASE_ENV = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1"}
"""GPUs numbered in PCI order; unbuffered output."""
SHARED_ENV = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
SHARED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_")
"""Variables of the server that jobs of other accounts get too."""


class TaskFile(msgspec.Struct, frozen=True):
    """What the shim reads."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    reports: str
    grace_s: float
    notes: list[str]
    cgroups: list[str]
    oom_file: str
    log_bytes: int
    log_files: int
    freezer: str = ""
    """The control group that can be frozen; empty if there is none."""
    fence: str = ""
    """The file with the epoch of the server that may send commands."""
    output: str = ""
    """Where a task that can be frozen writes its output, instead of a pipe to the shim."""
    freeze: list[str] = []
    restore: list[str] = []
    account: Account | None = None
    """The account that the task runs as; None: that of the shim."""
    umask: int = 0o022
    open_files: int = 0
    """Soft limit of the task; 0: that of the shim."""
    container: ContainerFile | None = None
    version: int = FILES_VERSION


def place_tasks(
    request: Request, member: GroupRef | None, allocation: Allocation, nodes: dict[int, str]
) -> list[TaskPlace]:
    """The tasks of a launch, role by role. A member of an incremental job is alone in its launch. `nodes`: their
    names."""
    names = list(request.tasks)
    seats = allocation.seating()
    if not seats:
        raise InputError("the allocation has no task")
    if member is not None:
        return [place_of(member.role, member.index, seats[0], allocation, nodes)]
    counts = dict.fromkeys(names, 0)
    places = []
    for seat in seats:
        role = names[seat.role]
        places.append(place_of(role, counts[role], seat, allocation, nodes))
        counts[role] += 1
    return places


def place_of(role: str, index: int, seat: Seat, allocation: Allocation, nodes: dict[int, str]) -> TaskPlace:
    node = nodes[seat.node]
    if not seat.gpus:
        return TaskPlace(role, index, node)
    mask = sum(1 << gpu for gpu in seat.gpus)
    pieces = [piece for piece in allocation.slices if (piece.node, piece.role) == (seat.node, seat.role)]
    piece = next(piece for piece in pieces if piece.gpus & mask)
    together = piece.tasks if piece.tasks > piece.gpus.bit_count() else 1
    return TaskPlace(
        role,
        index,
        node,
        seat.gpus,
        gpu_mem_mib=piece.gpu_mem_mib // together,
        mps_percent=piece.milli / 10 if piece.mode == MPS else 0.0,
        devices=mig_devices(seat.gpus, piece.milli, piece.slot) if piece.mode == MIG else (),
    )


def warnings_of(request: Request) -> list[str]:
    """What this engine does not do for the job; shown to the submitter and at the beginning of the job's log."""
    problem = criu_problem() if request.checkpoint == "criu" else None
    return [problem] if problem else []


def share_notes(place: TaskPlace) -> list[str]:
    """Limits of the job's share mode that are not enforced on this machine."""
    problem = mps_problem() if place.mps_percent else None
    return [problem] if problem else []


class Beginning(msgspec.Struct, frozen=True):
    """Everything that is decided about a launch before its files are written."""

    action: Launch | Move
    request: Request
    places: list[TaskPlace]
    ports: list[dict[str, list[int]]]
    owned: set[tuple[str, int]]
    """(node, GPU) of those that no other job may use."""
    account: Account | None = None


class Beginner:
    """Writes the folder of a launch atomically: a launch exists if the folder with its name exists."""

    def __init__(self, folder: Folder, groups: Cgroups, accounts: Accounts, limits: LimitRules = UNLIMITED) -> None:
        self.folder = folder
        self.groups = groups
        self.accounts = accounts
        self.limits = limits
        self.env = server_env()
        self.library = prepare_library(folder.python)

    def log_bytes(self, request: Request) -> int:
        """The number of log parts that are kept for one task."""
        most = self.limits.of_task(request.user, request.vc).log_mib
        return LOG_BYTES if most is None else most << 20

    def write(self, what: Beginning) -> LaunchRecord:
        job_id = what.action.job_id
        aside = self.folder.job(job_id) / f".{what.action.launch}"
        try:
            aside.mkdir(parents=True, mode=0o700)
        except FileExistsError:  # A server died while it wrote this.
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(mode=0o700)
        self._give(what, self._fetch(job_id, "checkpoint"))
        if not what.request.workdir or (what.account and not what.account.home):
            self._give(what, self._fetch(job_id, "work"))
        groups = [self._group(what, place) for place in what.places]
        try:
            return self._write(what, aside, groups)
        except Exception:
            for group in groups:
                for folder in group.folders:
                    remove_folder(folder)
            raise

    def _give(self, what: Beginning, folder: Path) -> None:
        """A folder owned by the job. Those above it belong to the server, so a job cannot replace it."""
        for above in reversed(folder.relative_to(self.folder.own).parents[:-1]):
            make_passage(self.folder.own / above, is_open=what.account is not None)
        give(folder, what.account)

    def _fetch(self, job_id: str, name: str) -> Path:
        """A folder of the job, moved from where it was before the setting `run_as` was changed."""
        wanted = self.folder.of_job(job_id, name)
        for place in (self.folder.jobs, self.accounts.job_files):
            if place is not None and place != self.folder.own and not wanted.exists():
                with contextlib.suppress(FileNotFoundError):
                    make_passage(wanted.parent, is_open=self.accounts.differ)
                    shutil.move(place / safe_name(job_id) / name, wanted)
        return wanted

    def _write(self, what: Beginning, aside: Path, groups: list[ControlGroup]) -> LaunchRecord:
        tasks = []
        for rank, (place, group) in enumerate(zip(what.places, groups, strict=True)):
            self._make_task(aside, what, rank, group)
            own = self.folder.of_task(what.action.job_id, what.action.launch, place.task)
            if what.account is None:
                (aside / own.parent.name / own.name).mkdir(mode=0o700)
            else:
                self._give(what, own)
            tasks.append(
                TaskRecord(
                    place.role,
                    place.index,
                    place.node,
                    what.ports[rank],
                    group.folders,
                    gpus=[gpu for gpu in place.gpus if (place.node, gpu) in what.owned],
                    shared=[gpu for gpu in place.gpus if (place.node, gpu) not in what.owned],
                    own=str(own),
                    container=self._container(what, place),
                )
            )
        record = LaunchRecord(what.action.job_id, what.action.launch, tasks)
        (aside / "launch.json").write_bytes(msgspec.json.encode(record))
        aside.rename(self.folder.launch(record.job_id, record.launch))
        return record

    def _path(self, what: Beginning, place: TaskPlace) -> Path:
        return self.folder.task(what.action.job_id, what.action.launch, place.task)

    def _group(self, what: Beginning, place: TaskPlace) -> ControlGroup:
        role = what.request.tasks[place.role]
        processes = self.limits.of_task(what.request.user, what.request.vc).processes or 0
        return self.groups.make(".".join(self._path(what, place).parts[-3:]), role.cpu, role.memory_gib, processes)

    def _container(self, what: Beginning, place: TaskPlace) -> str:
        """The name of its container; empty for a plain process."""
        if not what.request.tasks[place.role].image:
            return ""
        return name_of(self.groups.mark, what.action.job_id, what.action.launch, place.task)

    def _make_task(self, aside: Path, what: Beginning, rank: int, group: ControlGroup) -> None:
        place = what.places[rank]
        path = self._path(what, place)
        file = self._task_file(what, rank, group)
        if not (name := self._container(what, place)):
            make_task(aside / path.name, file)
            return
        env, image = inner_env(file.env, place), what.request.tasks[place.role].image
        folders = (env["SKEP_TASK_DIR"], env["SKEP_CHECKPOINT_DIR"])
        argv = run_command(
            name, image, file.argv, path, folders, self.library, file.cwd, file.account, place, file.umask
        )
        contained = msgspec.structs.replace(
            file,
            argv=argv,
            env=runtime_env(self.env),
            cwd="/",
            container=container_file(name, image, file.cwd, file.account),
        )
        make_task(aside / path.name, contained)
        write_files(aside / path.name, path, env, group.folders)

    def _task_file(self, what: Beginning, rank: int, group: ControlGroup) -> TaskFile:
        action, request, place = what.action, what.request, what.places[rank]
        task = self._path(what, place)
        own = self.folder.of_task(action.job_id, action.launch, place.task)
        folders = Folders(str(own), str(self.folder.of_job(action.job_id, "checkpoint")))
        freezer = self._freezer(what, task.name)
        work = str(self.folder.of_job(action.job_id, "work"))
        role = request.tasks[place.role]
        env = image_env(what.account, work) if role.image else base_env(self.env, what.account, work)
        return TaskFile(
            name=f"{action.job_id}/{action.launch}/{place.task}",
            argv=command_line(role),
            env=with_library(
                env | task_env(request, action.job_id, action.launch, what.places, rank, what.ports, folders),
                self.library,
            ),
            cwd=request.workdir or work,
            reports=str(self.folder.reports),
            grace_s=request.grace_s,
            notes=[*warnings_of(request), *share_notes(place)],
            cgroups=group.folders,
            oom_file=group.oom_file,
            freezer=group.freezer,
            fence=str(self.folder.epoch),
            log_bytes=max(self.log_bytes(request) // LOG_FILES, 1),
            log_files=LOG_FILES,
            output=str(freezer.output) if freezer else "",
            freeze=freezer.freeze() if freezer else [],
            restore=freezer.thaw(task) if freezer else [],
            account=what.account,
            umask=self.accounts.umask,
            open_files=STARTED_WITH,
        )

    def _freezer(self, what: Beginning, task: str) -> Freezer | None:
        if what.request.checkpoint != "criu" or criu_problem() is not None:
            return None
        before = self.folder.of_job(what.action.job_id, "checkpoint")
        if what.account is None and (before / f"criu-{task}").exists():
            return Freezer(before, task)  # Frozen by an earlier version; its path is in the image.
        # Not where the job can write: an image is restored with the rights of the shim.
        return Freezer(self.folder.job(what.action.job_id) / "frozen", task)


def server_env() -> dict[str, str]:
    """The server's environment without the variables that concern the server.

    Values that are not valid text are left out: `task.json` cannot hold them, and no job could be started.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("SKEP_") and is_text(key + value)}


def base_env(env: dict[str, str], account: Account | None, work: str) -> dict[str, str]:
    """The variables that a task gets from the server; its own take precedence.

    Another account gets only what it needs, because the rest may be secret.
    """
    if account is not None:
        env = {key: value for key, value in env.items() if key in SHARED_ENV or key.startswith(SHARED_PREFIXES)}
        env |= {"HOME": account.home or work, "USER": account.name, "LOGNAME": account.name}
    return BASE_ENV | env


def image_env(account: Account | None, work: str) -> dict[str, str]:
    """The rest is the image's own."""
    return BASE_ENV | ({"HOME": work, "USER": account.name, "LOGNAME": account.name} if account else {})


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def make_task(path: Path, file: TaskFile) -> None:
    path.mkdir(mode=0o700)
    fd = os.open(path / "task.json", os.O_WRONLY | os.O_CREAT, 0o600)  # It may contain secrets.
    with open(fd, "wb") as target:
        target.write(msgspec.json.encode(file))
    os.mkfifo(path / "control", 0o600)
    os.close(os.open(path / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if file.output:
        Path(file.output).touch(0o600)
        (path / "log").hardlink_to(file.output)


INIT = '''"""The part of Skep that jobs need, `skep.train`. Where Skep is installed, the rest of it is found too."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = {version!r}


def __getattr__(name):
    if name == "Client":
        from skep.client import Client

        return Client
    raise AttributeError(f"module 'skep' has no attribute {{name!r}}")
'''


def prepare_library(folder: Path) -> Path:
    """The path for PYTHONPATH, below `folder`. Each version has its own path: running jobs keep theirs."""
    files = {"skep/__init__.py": INIT.format(version=version("skep"))}
    for source in resources.files("skep.train").iterdir():
        if source.name.endswith(".py"):
            files[f"skep/train/{source.name}"] = source.read_text("utf-8")
    digest = hashlib.sha256("\0".join(f"{name}\0{files[name]}" for name in sorted(files)).encode()).hexdigest()[:12]
    target = folder / digest
    if not target.is_dir():
        _write(folder, target, files)
    folder.chmod(0o755)  # Under the server's umask it is made for the server alone, and jobs of all accounts read it.
    return target


def _write(folder: Path, target: Path, files: dict[str, str]) -> None:
    """Written aside and renamed, so that a crash leaves no partial copy."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    try:
        for name, text in files.items():
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        for made in (aside, aside / "skep", aside / "skep" / "train"):
            made.chmod(0o755)
        os.rename(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def with_library(env: dict[str, str], library: Path) -> dict[str, str]:
    """`skep.train` for jobs whose Python has no Skep: a folder with this module alone, which is put on PYTHONPATH."""
    before = env.get("PYTHONPATH", "")
    return env | {"PYTHONPATH": f"{library}{os.pathsep}{before}" if before else str(library)}


PIPES = "/tmp/nvidia-mps"
"""Where MPS clients find the daemon, unless the environment says otherwise."""


def mig_devices(gpus: tuple[int, ...], milli: int, slot: int) -> tuple[str, ...]:
    """The MIG instances of a task. None on a machine without GPUs, whose GPUs are virtual."""
    if not find_gpus():
        return ()
    profile = next(each for each in MIG_PROFILES.values() if each.milli == milli)
    found = {(each.gpu, each.start): each for each in find_mig_instances()}
    names = []
    for gpu in gpus:
        instance = found.get((gpu, slot))
        if instance is None or instance.size != profile.memory:
            has = ", ".join(f"{each.size} eighths from {each.start}" for each in found.values() if each.gpu == gpu)
            raise InputError(
                f"GPU {gpu} has no MIG instance {profile.name} at slot {slot} (it has {has or 'none'})",
                hint="make it with nvidia-smi mig -cgi",
            )
        names.append(instance.uuid)
    return tuple(names)


def mps_problem() -> str | None:
    """Why the thread percentage of a job in mode `mps` has no effect here; None: it has."""
    if not find_gpus():
        return "mode mps: this machine has no GPU; the job shares a virtual one without a bound"
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", PIPES)
    if not os.path.exists(f"{pipes}/control"):
        return "mode mps: no MPS daemon runs here, so nothing bounds the job (nvidia-cuda-mps-control -d starts one)"
    return None
