"""What is known about the speed and the length of jobs: measured figures, never the truth of a simulation.

It has four parts: speeds (from a profile and from reports of jobs), the progress of jobs that have not ended, the
history of those that have, and the requests of the latest jobs. All but the profile follows from events, so it is the
same in a replay, a snapshot and a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from skep.core.history import Finished, History, Past, Spread, owner_of
from skep.core.model import JobSpec, Need, NeedNotDeclared, Shape
from skep.core.progress import Progress, Report, Tally, moves
from skep.core.requests import Requests, SavedRequests
from skep.core.share import EXCLUSIVE, MODES
from skep.core.standstill import Standstills

if TYPE_CHECKING:
    from skep.core.cluster import Cluster
    from skep.core.job import Job
    from skep.core.view import JobView

T = TypeVar("T")

SUCCEEDED = "succeeded"
"""The value of `JobState.SUCCEEDED`, which cannot be imported here."""

PLACES_MAX = 10_000
"""The number of situations whose speeds are kept; the oldest is dropped first."""


AT_ONCE = ("alone", "together")
"""Rate models of share modes in which a job runs all the time."""

NOTHING = Past()
"""The history of a VC in which no job has run; never modified."""

NO_REQUESTS = Requests()
"""Of a VC without jobs; never written to."""


class SpeedKey(msgspec.Struct, frozen=True, array_like=True):
    """What a measured speed depends on."""

    model: str
    gpu_type: str
    gpus: int
    neighbours: tuple[str, ...] = ()
    """The models of other jobs on the same GPUs, sorted."""


class SpeedTally(Tally):
    """Steps per second reported from one situation."""

    settled: float = 0.0
    """The mean when it last changed by a tenth: policies decide by this, so noise changes no decision."""

    def settle(self) -> bool:
        """Returns whether the settled speed has changed."""
        if self.count > 1 and not moves(self.settled, self.mean):
            return False
        self.settled = self.mean
        return True


class GpuUse(NamedTuple):
    """What a job uses of a GPU when it is alone there, as fractions."""

    sm: float
    """Streaming multiprocessors: the compute."""
    bandwidth: float
    """Bandwidth of the GPU's memory."""
    pcie: float


class StepFigures(NamedTuple):
    """A training step of a job on so many nodes and GPUs, with so many samples that a GPU takes at once."""

    nodes: int
    gpus: int
    samples: int
    grad_s: float
    """Seconds in which gradients are computed."""
    step_s: float
    """The same with their exchange between the GPUs."""


class TrainingFigures(NamedTuple):
    """What a running job measures of its training."""

    step: StepFigures
    sqr: float
    var: float
    """Gradient noise: the square of the mean gradient and its variance, at the smallest batch size."""
    samples: tuple[int, int]
    """The fewest and the most that a GPU takes at once."""


class TrialFigures(NamedTuple):
    """What a short trial of a job on one GPU measures."""

    steps: tuple[StepFigures, ...]
    """With few samples and with many."""
    samples: tuple[int, int]
    """The fewest and the most that a GPU takes at once."""


class Training(Protocol):
    """The course of a job's training at its batch size, as it was measured in whole runs."""

    def step_s(self, gpus: int, gpu_type: str) -> float | None:
        """Seconds of a training step on so many GPUs, on as few nodes as possible. None: a GPU would get fewer samples
        than were measured."""

    def steps_left(self, work_s: float) -> float:
        """Training steps that are left after so much work."""


class ProfileFigures(Protocol):
    """Figures that a state starts with, from a profile if there is one. None: not known."""

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        """Work per second (1 at the job's reference) in this shape, on GPUs of that type, with the best placement the
        cluster allows, and with these jobs on the same GPUs. None (unknown) is not the same as 1."""

    @property
    def standstills(self) -> Standstills:
        """Where jobs make no progress: a job does not fit there, or not beside these. Every planner may read it."""

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        """Training steps per second, alone and in the best placement."""

    def models(self) -> frozenset[str]:
        """The models of which it has figures."""

    def training(self, job: JobSpec) -> Training | None:
        """The course of its training."""

    def shown(self, job: JobView, now_s: float) -> TrainingFigures | None:
        """What a running job measures of its training where it is, at its present batch size."""

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        """What a short trial on one GPU of that type measures."""

    def use(self, model: str) -> GpuUse | None:
        """What the job uses of a GPU when it is alone there."""


class Unknown:
    """No measurements."""

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        return None

    standstills = Standstills(None)

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        return None

    def models(self) -> frozenset[str]:
        return frozenset()

    def training(self, job: JobSpec) -> Training | None:
        return None

    def shown(self, job: JobView, now_s: float) -> TrainingFigures | None:
        return None

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        return None

    def use(self, model: str) -> GpuUse | None:
        return None


UNKNOWN = Unknown()


class KnowledgeView(ProfileFigures, Protocol):
    """What planners read."""

    def throughput(self, model: str, gpu_type: str, gpus: int, neighbours: tuple[str, ...] = ()) -> Spread | None:
        """Training steps per second beside jobs of these models (sorted): as reported by jobs, else from the profile,
        which has a single figure without a spread."""

    @property
    def speed_version(self) -> int:
        """Increases when reports change what `rate` returns."""

    @property
    def progress(self) -> Mapping[str, Progress]:
        """The latest logged progress of each job that reports and has not ended."""

    def rate_of(self, job: JobView) -> float | None:
        """Work per second of a running job, 1 at its reference, as it last reported."""

    @property
    def history(self) -> History:
        """Finished jobs, of the whole cluster or of the VC of this view."""

    @property
    def requests(self) -> Requests:
        """What the latest of these jobs asked for."""

    def of_vc(self, vc: str, needs: frozenset[Need]) -> KnowledgeView:
        """What a planner of one VC with these needs may read: the history and the requests are those of the VC."""


class Saved(msgspec.Struct):
    """The part of it that a snapshot contains: everything except the given figures."""

    whole: Past
    vcs: dict[str, Past]
    progress: dict[str, Progress]
    speeds: list[tuple[SpeedKey, SpeedTally]]
    requests: SavedRequests | None = None
    vc_requests: dict[str, SavedRequests] = {}


class Knowledge:
    """The knowledge of a state, which alone changes it. Many policies never read requests and history, so jobs are only
    listed as they come and go, and counted when one of the two is read, at the latest for a snapshot."""

    def __init__(self, measured: ProfileFigures = UNKNOWN, saved: Saved | None = None) -> None:
        saved = saved or Saved(Past(), {}, {}, [])
        self.measured = measured
        self.standstills = measured.standstills
        self.speed_version = 0
        self._whole = saved.whole
        self._vcs = saved.vcs
        self._ended: list[Job] = []
        """Jobs that are not in these two yet."""
        self.progress = saved.progress
        self.speeds = dict(saved.speeds)
        """Steps per second reported by jobs that name a model."""
        self._fastest: dict[tuple[str, int], float] | None = None
        """The largest of them by model and GPUs, alone; None: to be found again."""
        self.history = History(lambda: self.whole, self.used_by)
        self._requests = Requests(saved.requests)
        self._vc_requests = {vc: Requests(each) for vc, each in saved.vc_requests.items()}
        self._submitted: list[Job] = []
        """Jobs that are not in these two yet."""

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        """From the profile, which knows what every placement costs; else from the speeds that jobs of this model have
        reported, relative to the job's reference."""
        given = self.measured.rate(job, shape, gpu_type, neighbours)
        if given is not None or not self.speeds:
            return given
        reference = self.reported_reference(job)
        beside = tuple(sorted(other.model for other in neighbours))
        speed = self._settled(SpeedKey(job.model, gpu_type, shape.gpus, beside))
        return speed / reference if speed and reference else None

    def reported_reference(self, job: JobSpec) -> float | None:
        """Steps per second of the job's first shape, as reported by jobs of its model: on the type that it names, else
        on the fastest, so that its rates on different types can be compared."""
        asked = job.shapes[0]
        if asked.gpu_types:
            return self._settled(SpeedKey(job.model, asked.gpu_types[0], asked.gpus))
        if self._fastest is None:
            self._fastest = {}
            for key, tally in self.speeds.items():
                if not key.neighbours:
                    which = (key.model, key.gpus)
                    self._fastest[which] = max(self._fastest.get(which, 0.0), tally.settled)
        return self._fastest.get((job.model, asked.gpus))

    def _settled(self, key: SpeedKey) -> float | None:
        found = self.speeds.get(key)
        return None if found is None else found.settled

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        return self.measured.steps_per_s(model, gpu_type, gpus)

    def models(self) -> frozenset[str]:
        """Also those of jobs that have reported."""
        return self.measured.models() | {key.model for key in self.speeds}

    def training(self, job: JobSpec) -> Training | None:
        return self.measured.training(job)

    def shown(self, job: JobView, now_s: float) -> TrainingFigures | None:
        return self.measured.shown(job, now_s)

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        return self.measured.trial(job, gpu_type)

    def use(self, model: str) -> GpuUse | None:
        return self.measured.use(model)

    def throughput(self, model: str, gpu_type: str, gpus: int, neighbours: tuple[str, ...] = ()) -> Spread | None:
        tally = self.speeds.get(SpeedKey(model, gpu_type, gpus, neighbours))
        if tally is not None:
            return tally.spread
        given = None if neighbours else self.measured.steps_per_s(model, gpu_type, gpus)
        return None if given is None else Spread(1, given, 0.0)

    def rate_of(self, job: JobView) -> float | None:
        progress = self.progress.get(job.id)
        if progress is None or progress.launch != job.held_launch or not progress.report.reference:
            return None
        speed = progress.report.steps_per_s
        return None if speed is None else speed / progress.report.reference

    def of_vc(self, vc: str, needs: frozenset[Need]) -> KnowledgeView:
        return ShownKnowledge(self, needs, vc)

    def used_by(self, vc: str) -> float:
        return self._vcs.get(vc, NOTHING).used_gpu_s

    @property
    def whole(self) -> Past:
        if self._ended:
            self._count_ended()
        return self._whole

    @property
    def vcs(self) -> dict[str, Past]:
        if self._ended:
            self._count_ended()
        return self._vcs

    @property
    def requests(self) -> Requests:
        if self._submitted:
            self._count_submitted()
        return self._requests

    @property
    def vc_requests(self) -> dict[str, Requests]:
        if self._submitted:
            self._count_submitted()
        return self._vc_requests

    def saved(self) -> Saved:
        of_vcs = {vc: requests.saved() for vc, requests in self.vc_requests.items()}
        return Saved(self.whole, self.vcs, self.progress, list(self.speeds.items()), self.requests.saved(), of_vcs)

    def note_request(self, job: Job) -> None:
        self._submitted.append(job)

    def _count_submitted(self) -> None:
        submitted, self._submitted = self._submitted, []
        made = [(job.submit_s, job.spec.shapes[0]) for job in submitted]
        self._requests.note(made)
        for vc, own in by_vc(submitted, made).items():
            if vc not in self._vc_requests:
                self._vc_requests[vc] = Requests()
            self._vc_requests[vc].note(own)

    def note_end(self, job: Job) -> None:
        """The job has ended. Only jobs that succeeded count as history."""
        if self.progress:
            self.progress.pop(job.id, None)
        if job.state == SUCCEEDED:
            self._ended.append(job)
            if job.spec.vc not in self._vcs:
                self._vcs[job.spec.vc] = Past()

    def _count_ended(self) -> None:
        ended, self._ended = self._ended, []
        past = [
            Finished(owner_of(job), job.spec.model, float(job.gpus), job.work_s, job.run_s, job.service_gpu_s)
            for job in ended
        ]
        self._whole.note(past)
        for vc, own in by_vc(ended, past).items():
            self._vcs[vc].note(own)

    def let_go(self) -> None:
        """Count what was only noted, so that no job is kept here that the state drops."""
        self._count_submitted()
        self._count_ended()

    def note_use(self, vc: str, gpu_s: float) -> None:
        self._whole.used_gpu_s += gpu_s
        of_vc = self._vcs.get(vc)
        if of_vc is None:
            of_vc = self._vcs[vc] = Past()
        of_vc.used_gpu_s += gpu_s

    def note_report(self, at_s: float, job: Job, report: Report, place: SpeedKey | None) -> None:
        """A job has reported progress; its `SpeedKey` is None if the model has no name."""
        progress = self.progress.get(job.id)
        if progress is None:
            progress = self.progress[job.id] = Progress(at_s, job.held_launch, report)
        progress.take_in(at_s, job.held_launch, report)
        if report.steps_per_s is not None and place is not None:
            tally = self.speeds.get(place)
            if tally is None:
                if len(self.speeds) >= PLACES_MAX:
                    del self.speeds[next(iter(self.speeds))]
                tally = self.speeds[place] = SpeedTally()
            tally.add(report.steps_per_s)
            if tally.settle():
                self.speed_version += 1
                self._fastest = None

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        for progress in self.progress.values():
            progress.at_s += by_s
        for requests in (self.requests, *self.vc_requests.values()):
            requests.shift(by_s)


class ShownKnowledge:
    """What a planner with these needs may read: of the whole cluster, or speeds and progress of all jobs, the history
    and the requests of one VC. What it did not declare is not there, and `__getattr__` says so."""

    rate: Callable[..., float | None]
    steps_per_s: Callable[[str, str, int], float | None]
    throughput: Callable[..., Spread | None]
    use: Callable[[str], GpuUse | None]
    models: Callable[[], frozenset[str]]
    shown: Callable[[JobView, float], TrainingFigures | None]
    trial: Callable[[JobSpec, str], TrialFigures | None]
    training: Callable[[JobSpec], Training | None]
    progress: Mapping[str, Progress]
    history: History

    def __init__(self, whole: Knowledge, needs: frozenset[Need], vc: str | None = None) -> None:
        self._whole, self._needs, self._vc = whole, needs, vc
        self.rate_of, self.standstills = whole.rate_of, whole.standstills
        if Need.THROUGHPUT in needs:
            self.rate, self.steps_per_s, self.throughput = whole.rate, whole.steps_per_s, whole.throughput
            self.use, self.models, self.shown, self.trial = whole.use, whole.models, whole.shown, whole.trial
        if Need.ORACLE in needs:
            self.training = whole.training
        if Need.PROGRESS in needs:
            self.progress = whole.progress
        if Need.HISTORY in needs:
            of_vc = History(lambda: whole.vcs.get(vc or "", NOTHING), whole.used_by)
            self.history = whole.history if vc is None else of_vc

    def __getattr__(self, name: str) -> NoReturn:
        need = READ_WITH.get(name)
        if need is None:
            raise AttributeError(f"a planner knows no {name}")
        raise NeedNotDeclared(f"`knowledge.{name}`", need)

    @property
    def speed_version(self) -> int:
        return self._whole.speed_version

    @property
    def requests(self) -> Requests:
        whole, vc = self._whole, self._vc
        return whole.requests if vc is None else whole.vc_requests.get(vc, NO_REQUESTS)

    def of_vc(self, vc: str, needs: frozenset[Need]) -> KnowledgeView:
        if not needs <= self._needs:
            raise NeedNotDeclared(f"the knowledge of VC {vc}", min(needs - self._needs))
        return ShownKnowledge(self._whole, needs, vc)


READ_WITH = {
    **dict.fromkeys(("rate", "steps_per_s", "throughput", "use", "models", "shown", "trial"), Need.THROUGHPUT),
    "training": Need.ORACLE,
    "progress": Need.PROGRESS,
    "history": Need.HISTORY,
}
"""The need with which each is read."""


def as_view(knowledge: Knowledge, shown: ShownKnowledge) -> tuple[KnowledgeView, KnowledgeView]:
    """Lets the type checker verify that these classes are `KnowledgeView`s."""
    return knowledge, shown


def by_vc(jobs: list[Job], values: list[T]) -> dict[str, list[T]]:
    """The values of these jobs, by VC."""
    found: dict[str, list[T]] = {}
    for job, value in zip(jobs, values, strict=True):
        found.setdefault(job.spec.vc, []).append(value)
    return found


def neighbours_of(job: Job, there: Mapping[int, Job], cluster: Cluster) -> list[Job]:
    """The jobs that run on GPUs of this job; `there` are the jobs that hold something, by seq."""
    if job.held is None:
        return []
    found = (there.get(seq) for seq in cluster.neighbours(job.held, job.seq))
    return [other for other in found if other is not None and not other.is_halted]


def place_of(job: Job, there: Mapping[int, Job], cluster: Cluster) -> SpeedKey | None:
    """The situation of a running job, for the table of speeds. None if its speed depends on more than the key has: no
    model (also of a neighbour), several GPU types, more nodes than needed, several workers on a GPU, or a share mode
    that gives it only a part of the time or of the GPU."""
    held = job.held
    if not job.spec.model or held is None or held.depth > 1:
        return None
    nodes = [cluster.nodes[node] for node, _ in held.masks()]
    if len({node.pool.gpu_type for node in nodes}) != 1 or MODES[held.terms.mode or EXCLUSIVE].rate not in AT_ONCE:
        return None
    gpus, pool = held.gpu_count(), nodes[0].pool
    beside = tuple(sorted(other.spec.model for other in neighbours_of(job, there, cluster)))
    if len(nodes) > -(-gpus // pool.size_max) or "" in beside:
        return None
    return SpeedKey(job.spec.model, pool.gpu_type, gpus, beside)
