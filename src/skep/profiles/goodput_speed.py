"""The speeds of jobs whose whole training was measured (`profiles/goodput.py`)."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from pathlib import Path

from skep.core.cluster import Allocation, Cluster
from skep.core.knowledge import GpuUse, StepFigures, TrainingFigures, TrialFigures
from skep.core.model import JobSpec
from skep.profiles.goodput import NODE_GPUS, GoodputModel, Placement, read_models
from skep.profiles.profile import Profile
from skep.profiles.speed import Speed

REFERENCE_KIND = "aws"
"""The kind of node on which the lengths of jobs are stated: the only one on which Pollux was tried."""


def read_goodput(folder: Path) -> GoodputProfile:
    return GoodputProfile(read_models(folder))


class GoodputProfile(Profile):
    def __init__(self, tables: dict[str, GoodputModel]) -> None:
        self.tables = tables

    def models(self) -> set[str]:
        return set(self.tables)

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        """At the smallest batch size."""
        table = self.tables.get(model)
        if table is None or not 1 <= gpus <= table.gpus_max:
            return None
        return 1 / table.step_s(table.batches[0], filled(gpus), kind_of(table, gpu_type))

    def run_s(self, model: str, gpus: int, batch_size: int) -> float | None:
        table = self.tables.get(model)
        return None if table is None else TrainingRun(table, gpus, batch_size, "").work_s

    def gpus_max(self, model: str) -> int | None:
        table = self.tables.get(model)
        return None if table is None else table.gpus_max

    def batches(self, model: str) -> tuple[int, int] | None:
        table = self.tables.get(model)
        return None if table is None else table.batch_range

    def speed(self, cluster: Cluster) -> Speed:
        return GoodputSpeed(self, cluster)


class TrainingRun:
    """The training of a job from its first to its last epoch. Its work is in seconds at its reference: as many GPUs as
    it requested, on as few nodes as possible, at its batch size."""

    def __init__(self, table: GoodputModel, gpus: int, batch_size: int, kind: str) -> None:
        self.table = table
        self.batch = batch_size or table.batches[0]
        self.kind = kind_of(table, kind)
        ends, placement = table.ends, filled(min(gpus, table.gpus_max))
        steps = [end - before for before, end in zip((0.0, *ends[:-1]), ends, strict=True)]
        goodputs = [table.goodput(self.batch, placement, self.kind, epoch) for epoch in range(table.epochs)]
        self.work_s = math.fsum(step / goodput for step, goodput in zip(steps, goodputs, strict=True))
        self.unit = self.work_s / ends[-1]
        """Work for one unit of progress."""
        self.ends = [end * self.unit for end in ends]

    def epoch_at(self, work_s: float) -> int:
        """Counted from 0; the last one at the end."""
        return min(bisect.bisect_right(self.ends, work_s), len(self.ends) - 1)

    def rate(self, placement: Placement, kind: str, work_s: float, batch: int) -> tuple[float, float]:
        epoch = self.epoch_at(work_s)
        goodput = self.table.goodput(batch, placement, kind_of(self.table, kind), epoch)
        until_s = self.ends[epoch] if epoch < len(self.ends) - 1 else math.inf
        return goodput * self.unit, until_s

    def figures(self, placement: Placement, kind: str, work_s: float, batch: int) -> TrainingFigures:
        table, kind = self.table, kind_of(self.table, kind)
        gpus, times = sum(placement), table.kinds[kind]
        micro = table.micro(batch, gpus, kind)
        step = times.at(placement, micro.samples)
        noise = table.noise(gpus * micro.samples * micro.parts, self.epoch_at(work_s))
        seen = StepFigures(len(placement), gpus, micro.samples, step.step_s - step.sync_s, step.step_s)
        return TrainingFigures(seen, noise.sqr, noise.var, (times.samples[0], table.samples_max or times.samples[1]))

    # What a planner with an oracle reads ------------------------------------------------------------------------

    def step_s(self, gpus: int, gpu_type: str) -> float | None:
        kind = kind_of(self.table, gpu_type)
        if gpus > self.table.gpus_max or self.batch // gpus < self.table.kinds[kind].samples[0]:
            return None
        # A single GPU takes the smallest batch in two parts too here, as in Pollux' own simulator.
        return self.table.step_s(self.batch, filled(gpus), kind, 2 if gpus == 1 else 1)

    def steps_left(self, work_s: float) -> float:
        """1 in the last epoch."""
        epoch, last = self.epoch_at(work_s), self.table.epochs - 1
        return self.table.steps_between(self.batch, epoch, last) if epoch < last else 1.0


class GoodputSpeed:
    """The rates of jobs on one cluster. A GPU type that was not measured counts as the reference kind, a model that was
    not measured runs at rate 1."""

    knows_sharing = False
    tick_s = 1.0
    has_first_restart = True

    def __init__(self, profile: GoodputProfile, cluster: Cluster) -> None:
        self.profile = profile
        self.types = [node.spec.gpu_type for node in cluster.nodes]
        self.run = functools.cache(self._run)

    def _run(self, model: str, gpus: int, batch_size: int, asked_type: str) -> TrainingRun:
        return TrainingRun(self.profile.tables[model], gpus, batch_size, asked_type)

    def models(self) -> frozenset[str]:
        return frozenset(self.profile.tables)

    def training(self, job: JobSpec) -> TrainingRun | None:
        if job.model not in self.profile.tables:
            return None
        asked = job.shapes[0]
        return self.run(job.model, max(asked.gpus, 1), job.batch_size or 0, (asked.gpu_types or ("",))[0])

    def knows(self, job: JobSpec, gpu_type: str, neighbours: Sequence[JobSpec]) -> bool:
        table = self.profile.tables.get(job.model)
        return table is not None and gpu_type in table.kinds and not neighbours

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        return self.profile.steps_per_s(model, gpus, gpu_type)

    def rate(
        self,
        job: JobSpec,
        allocation: Allocation,
        neighbours: Sequence[JobSpec],
        work_s: float,
        batch_size: int | None = None,
    ) -> tuple[float, float]:
        run, (placement, kinds) = self.training(job), self._seats(allocation)
        if run is None or not placement:
            return 1.0, math.inf
        return min(run.rate(placement, kind, work_s, batch_size or run.batch) for kind in kinds)

    def figures(
        self, job: JobSpec, allocation: Allocation, work_s: float, batch_size: int | None = None
    ) -> TrainingFigures | None:
        run, (placement, kinds) = self.training(job), self._seats(allocation)
        if run is None or len(kinds) != 1:
            return None
        return run.figures(placement, kinds[0], work_s, batch_size or run.batch)

    def series(self, job: JobSpec, steps: float) -> dict[str, float]:
        return {}

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        """With the fewest samples, the most, and as many times more than the one as fewer than the other."""
        table = self.profile.tables.get(job.model)
        if table is None or gpu_type not in table.kinds:
            return None
        times = table.kinds[gpu_type]
        least, most = times.samples[0], table.samples_max or times.samples[1]
        tried = {samples: times.at((1,), samples) for samples in (least, round(math.sqrt(least * most)), most)}
        steps = [StepFigures(1, 1, samples, step.step_s - step.sync_s, step.step_s) for samples, step in tried.items()]
        return TrialFigures(tuple(steps), (least, most))

    def _seats(self, allocation: Allocation) -> tuple[Placement, list[str]]:
        """GPUs on each node, and the kinds of these nodes."""
        pieces: dict[int, int] = {}
        for piece in allocation.slices:
            if piece.gpus:
                pieces[piece.node] = pieces.get(piece.node, 0) + max(piece.gpus.bit_count(), piece.tasks)
        return tuple(pieces.values()), sorted({self.types[node] for node in pieces})

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        return None

    def usual_beside(self, model: str) -> float | None:
        return None

    def use(self, model: str) -> GpuUse | None:
        return None


def kind_of(table: GoodputModel, gpu_type: str) -> str:
    for kind in (gpu_type, REFERENCE_KIND):
        if kind in table.kinds:
            return kind
    return next(iter(table.kinds))


def filled(gpus: int) -> Placement:
    """Nodes that are filled one after the other."""
    full, rest = divmod(gpus, NODE_GPUS)
    return (NODE_GPUS,) * full + ((rest,) if rest else ())
