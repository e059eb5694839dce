"""The two contracts everything else meets at: who decides, and who carries it out."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

import msgspec

from skep.core.actions import Action, Setting
from skep.core.cluster import Cluster
from skep.core.errors import SkepError
from skep.core.events import Batch, Event
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import Refusal
from skep.core.view import JobView, Trigger, View


class Planner(Protocol):
    """From the state of the cluster to the state we want. No clock, no chance, no I/O.

    What a planner keeps for speed must follow from the state and the memory alone: `attach` rebuilds it when the
    planner starts, after a recovery, on a fork and on a policy switch.
    """

    name: str
    round_s: float
    """It is asked at multiples of so many seconds only; 0: whenever something happens."""

    def attach(self, view: View, memory: Memory) -> None: ...

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan: ...

    def why_never(self, view: View, job: JobView) -> str:
        """Why a job could not run even on an empty cluster; empty: it could."""

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal: ...


class SimulatedWorld(Protocol):
    """A simulated engine: its clock jumps to whatever comes next, and it answers actions at once, by events."""

    def observe(self, until_s: float) -> Batch | None:
        """The next events, none later than `until_s` (a `TimerDue` when that comes first); `None` at the end."""

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        """Begin these, and return what is known at once."""


class Capability(enum.StrEnum):
    """What an engine can do beyond starting and stopping jobs. Those that policies need have the same names there."""

    CHECKPOINT = "checkpoint"
    """`Checkpoint`: a job saves when it is asked to, and goes on."""
    SUSPEND = "suspend"
    """`Suspend` and `Resume`, with the memory of the job where it is."""
    SWAP = "swap"
    """`Suspend` with `memory="swapped"`."""
    MIGRATE = "migrate"
    """`Move` to other nodes or GPUs."""
    RESIZE = "resize"
    """`Move` with more or fewer of them."""
    SHARE = "share"
    """Several jobs on one GPU."""
    LIMIT = "limit"
    TUNE = "tune"
    LOGS = "logs"
    """What tasks print can be read, also while they run."""
    PROGRESS = "progress"
    """What jobs say of themselves through `skep.train`."""
    EXEC = "exec"
    """Commands beside a task, with its environment, on the machine of the server."""
    IMAGES = "images"
    """Tasks run in the container image that they name."""
    NODES = "nodes"
    """It finds out by itself which nodes there are."""


class TaskStatus(msgspec.Struct, frozen=True):
    """How one task of a launch stands."""

    name: str
    state: str
    """In the words of the states of jobs."""
    node: str
    gpus: list[int] = []
    exit_code: int | None = None


class Metrics(msgspec.Struct, frozen=True):
    """What a task of one launch reported through `skep.train`, a line of JSON for each reported step."""

    launch: int
    lines: list[bytes]
    is_cut: bool = False
    """There was more; the latest lines are here."""


class TaskEnvironment(msgspec.Struct, frozen=True):
    """What a command needs to run as if it were the task."""

    env: dict[str, str]
    cwd: str
    task: str


class Wanted(msgspec.Struct, frozen=True):
    """What the state of a server that starts wants of an engine which may have done some of it already."""

    actions: list[Action] = []
    """Launches of what should run, and what follows for them. The engine knows by their numbers what it has done."""
    known: set[tuple[str, int]] = set()
    """Job and number of every launch that may be there. What runs for other launches is ended without a report."""
    lost: set[str] = set()
    """Nodes on which nothing is to be started."""


class LogReader(Protocol):
    """What a task printed, from one place on. For one thread at a time."""

    def read(self) -> bytes:
        """The next piece; empty while there is no more."""

    def close(self) -> None: ...


class StaleEpoch(SkepError):
    """Another server has taken over: the caller may not act any more, and nothing was done."""

    def __init__(self, epoch: int, newer: int) -> None:
        super().__init__(f"another server has taken over (epoch {newer}; this one has {epoch})")
        self.epoch, self.newer = epoch, newer


class Engine(Protocol):
    """Runs jobs and reports what happens. Calls come from any thread and do not wait for jobs.

    Its constructor gets a function that takes a list of reports. They come in the order in which
    things happened, as far as it knows; the receiver must handle late, duplicate and lost ones.
    """

    name: str
    capabilities: frozenset[Capability]

    # Orders. Each carries the epoch of the server that gives it; older than one that was seen: `StaleEpoch`.

    def last_epoch(self) -> int:
        """The latest that it has seen. A server that starts takes a later one and writes it down before it acts."""

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        """The first order of a server, also after a crash: orders of earlier epochs are refused from here on, durably.
        The engine reports the status of each launch of `wanted` again."""

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        """Begin these, in order. Results come as reports. What is not among `capabilities` is reported as `Refused`.

        A repeated launch is reported again. A launch that fails in part is cleaned up before it is reported.
        """

    def lose_node(self, epoch: int, node: str) -> None:
        """Kill everything there, at once, as if its machine had died; nothing is to be started there."""

    def restore_node(self, epoch: int, node: str) -> None: ...

    def use_cluster(self, cluster: Cluster) -> None:
        """For launches from now on; what runs stays on the nodes it has, by name."""

    def look(self) -> None:
        """Check everything that runs, report what has ended, and then report `Looked`."""

    def forget(self, job_id: str) -> None:
        """Remove what is kept of a job that has ended, its logs and checkpoints too."""

    def close(self) -> None:
        """The jobs go on; the next engine finds them."""

    # Queries, which do not block.

    def last_job(self) -> int:
        """The largest number of a job of which anything is kept."""

    def tasks(self, job_id: str) -> list[TaskStatus]:
        """Of the last launch."""

    def progress(self, job_id: str) -> dict[str, Setting]:
        """The latest report of the job. Never fails: it is called for whole lists of jobs."""

    def share(self, job_id: str) -> dict[str, Setting]:
        """What it has measured lately of a job that takes turns on its GPUs: `share` (0 to 1) and what else it knows.
        Never fails; empty for any other job."""

    def metrics(self, job_id: str, task: str = "") -> Iterable[Metrics]:
        """By launch, the oldest first; without a name those of the first task."""

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        """`NotFound` where there was no such start, or it has no such task."""

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        """From its beginning, or its last lines. Without a name that of the first task; without a number that of the
        last launch, and then of those that follow. One that is not there yet has nothing to read until it is."""

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        """`NotFound` where there is none."""

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        """By node, what the driver says of its GPUs."""
