"""The two central contracts: the planner, which decides, and the engine, which executes."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from skep.core.actions import Action, Setting
from skep.core.cluster import Cluster
from skep.core.errors import InputError, SkepError
from skep.core.events import Batch, Event
from skep.core.memory import At, Memory
from skep.core.model import Need
from skep.core.plan import Plan
from skep.core.refusal import Refusal
from skep.core.solving import SolverProblem
from skep.core.view import JobView, Trigger, View


class Planner(Protocol):
    """A planner computes the wanted state of the cluster from its present state. It uses no clock, randomness or I/O.

    Everything a planner caches must follow from the state and the memory alone: `attach` rebuilds it when the planner
    starts, after a recovery, on a fork and on a change of policy.
    """

    name: str
    round_s: float
    """The planner is called only at multiples of this many seconds; 0: whenever something happens."""
    drifts: bool
    """True if a round begins when the one before ends, which is as soon as all of its jobs have ended; otherwise at
    multiples."""
    declared: frozenset[Need]
    """What it needs to know: nothing else can be read (`core/model.py`)."""

    def needs_in(self, vc: str) -> frozenset[Need]:
        """What it declares for the jobs of this VC, a part of `declared`."""

    def attach(self, view: View, memory: Memory) -> None: ...

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan: ...

    def problem(self, view: View, memory: Memory, at: At) -> SolverProblem:
        """For a planner that asks (`core/solving.py`): the problem on the present state; `at` is the part of the memory
        whose planner has asked."""

    def why_never(self, view: View, job: JobView) -> str:
        """Why a job could not run even on an empty cluster; empty: it could."""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal: ...


class SimulatedWorld(Protocol):
    """A simulated engine: its clock jumps to the next event, and it answers actions immediately with events."""

    def observe(self, until_s: float) -> Batch | None:
        """The next events, none later than `until_s` (a `TimerDue` if that comes first); `None` at the end."""

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        """Start these actions and return the events that are known immediately."""


class Capability(enum.StrEnum):
    """What an engine can do beyond starting and stopping jobs. Capabilities that policies need have the same names in
    `Need`."""

    CHECKPOINT = "checkpoint"
    """`Checkpoint`: a job saves on request and continues."""
    SUSPEND = "suspend"
    """`Suspend` and `Resume`, with the memory of the job left in place."""
    SWAP = "swap"
    """`Suspend` with `memory="swapped"`."""
    MIGRATE = "migrate"
    """`Move` to other nodes or GPUs."""
    RESIZE = "resize"
    """`Move` with more or fewer GPUs."""
    SHARE = "share"
    """Several jobs on one GPU."""
    INSTANT = "instant"
    """Share mode `instant`: a job takes a GPU from another within milliseconds. Only the simulator offers it."""
    EXACT_GPUS = "exact-gpus"
    """A task gets the GPUs of its seat. Without it the engine gives a number of GPUs, and does not know which."""
    LIMIT = "limit"
    TUNE = "tune"
    LOGS = "logs"
    """The output of tasks can be read, also while they run."""
    PROGRESS = "progress"
    """Progress that jobs report through `skep.train`."""
    EXEC = "exec"
    """Commands can be run beside a task, with its environment, on the server's machine."""
    IMAGES = "images"
    """Tasks run in the container image that they name."""
    NODES = "nodes"
    """The engine discovers the nodes by itself."""


class TaskStatus(msgspec.Struct, frozen=True):
    """The status of one task of a launch."""

    name: str
    state: str
    """Named like the states of jobs."""
    node: str
    gpus: list[int] = []
    exit_code: int | None = None


class Metrics(msgspec.Struct, frozen=True):
    """What a task of one launch reported through `skep.train`: one line of JSON per reported step."""

    launch: int
    lines: list[bytes]
    is_cut: bool = False
    """True if only the latest lines are included."""


class TaskEnvironment(msgspec.Struct, frozen=True):
    """The environment of a task, for running a command in it."""

    env: dict[str, str]
    cwd: str
    task: str
    within: list[str] = []
    """The words before a command that take it into the task's container."""
    is_here: bool = True
    """False: not on the server's machine; see `RunsBeside`."""


@runtime_checkable
class RunsBeside(Protocol):
    """An engine whose tasks are elsewhere: the server runs commands beside them."""

    def run_beside(self, job_id: str, task: str, argv: list[str]) -> Iterator[tuple[int, bytes]]:
        """Pieces of output as they come: (1, stdout), (2, stderr) and last (0, the exit code)."""


class Wanted(msgspec.Struct, frozen=True):
    """What a server that starts wants of its engine, which may already have done some of it."""

    actions: list[Action] = []
    """Launches of all jobs that should run, and their follow-up actions. The engine recognises launches it has already
    done by their numbers."""
    known: set[tuple[str, int]] = set()
    """Job and number of every launch that may exist. Processes of other launches are killed without a report."""
    lost: set[str] = set()
    """Nodes on which nothing may be started."""
    store: str = ""
    """The id of the server's store."""
    is_new: bool = False
    """True if an admin said that this store may replace the one that the engine knows (`skep up --new`)."""


class LogReader(Protocol):
    """A reader of a task's output, for one thread at a time."""

    def read(self) -> bytes:
        """The next piece; empty if there is no more at present."""

    def line(self) -> int:
        """The number of the line in which the next piece begins, among all that the task has written; from 1."""

    def size(self) -> int:
        """Bytes of the log that are kept."""

    def close(self) -> None: ...


class StaleEpoch(SkepError):
    """Another server has taken over: the caller must not act any more, and nothing was done."""

    def __init__(self, epoch: int, newer: int) -> None:
        super().__init__(f"another server has taken over (epoch {newer}; this one has {epoch})")
        self.epoch, self.newer = epoch, newer


class ForeignStore(InputError):
    """The engine runs jobs of another store: this server would end them, so it must not act, and nothing was done."""

    def __init__(self, store: str, known: str) -> None:
        super().__init__(
            f"the engine runs jobs of another store ({known}; this one is {store}), which this server would end",
            hint="start the server on its own store, or give those jobs up with `skep up --new`",
        )
        self.store, self.known = store, known


class EngineCommands(Protocol):
    """What the writer tells an engine. Each command carries the epoch of its server; an epoch older than the latest one
    raises `StaleEpoch`."""

    def last_epoch(self) -> int:
        """The latest epoch it has seen. A server that starts chooses a later one and stores it before it acts."""

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        """The first command of a server, also after a crash. From now on commands of earlier epochs are refused,
        durably. The engine reports the status of each launch in `wanted` again.

        An engine whose launches are not in the data folder of the store keeps the store's id; another id raises
        `ForeignStore`, unless `wanted.is_new`, and nothing changes."""

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        """Start these actions, in order. Results arrive as reports. An action that is not among `capabilities` is
        reported as `Refused`.

        A repeated launch is reported again. A launch that fails in part is cleaned up before it is reported.
        """

    def lose_node(self, epoch: int, node: str) -> None:
        """Kill everything on the node immediately, as if its machine had died, and start nothing there."""

    def restore_node(self, epoch: int, node: str) -> None: ...

    def use_cluster(self, cluster: Cluster) -> None:
        """Use these nodes for launches from now on; running launches keep the nodes they have, by name."""

    def look(self, job_ids: Collection[str]) -> None:
        """Report what has already come in, check these jobs, report those that have ended, and then report `Looked`.
        Without job ids, nothing needs to be checked: it must not cost a question about every job."""

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        """The exit of this launch is durable: the engine need not keep it any longer, and may remove what it left
        (pods, finalizers). Comes after every report of an exit, also a duplicate one; never for a launch whose exit was
        not reported. A server that crashed before does not repeat it: what it settled is not in `Wanted.known`."""

    def make_room(self) -> bool:
        """The store cannot write because the disk is full: end the job that fills it. True if that may have helped. It
        may take some seconds."""

    def forget(self, job_id: str) -> None:
        """Delete what is stored about an ended job, including logs and checkpoints."""

    def close(self) -> None:
        """Stop the engine. The jobs run on; the next engine adopts them."""


class EngineReads(Protocol):
    """What can be asked of an engine at any time. No question blocks."""

    name: str
    capabilities: frozenset[Capability]

    def problems(self) -> list[str]:
        """What admins should know of it at this moment."""

    def last_job(self) -> int:
        """The largest job number of which anything is stored."""

    def tasks(self, job_id: str) -> list[TaskStatus]:
        """The tasks of the last launch."""

    def progress(self, job_id: str) -> dict[str, Setting]:
        """The latest report of the job. Never raises: it is called for whole lists of jobs."""

    def share(self, job_id: str) -> dict[str, Setting]:
        """Recent measurements of a job that takes turns on its GPUs: `share` (0 to 1) and others. Never raises; empty
        for any other job."""

    def metrics(self, job_id: str, task: str = "") -> Iterable[Metrics]:
        """By launch, oldest first; without a task name, those of the first task."""

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        """Raises `NotFound` if there was no such launch, or it has no such task."""

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        """A reader from the beginning, or of the last lines. Without a task name it reads the first task; without a
        launch number it reads the last launch and then those that follow. A launch that does not exist yet has no
        output."""

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        """Raises `NotFound` if there is none."""

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        """By node, what the driver reports about its GPUs."""

    def disk_used(self) -> Mapping[tuple[str, str], int] | None:
        """Bytes of the files that the jobs of each `("user", name)` and each `("VC", name)` have, as last measured;
        None if it does not measure."""


class Engine(EngineCommands, EngineReads, Protocol):
    """Runs jobs and reports what happens. Methods may be called from any thread and do not wait for jobs.

    The constructor takes a function that receives lists of reports, in the order in which things happened as far as the
    engine knows. The receiver must handle late, duplicate and lost reports.
    """
