"""One job in the simulator, with its true work and speed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from skep.core.actions import Setting
from skep.core.cluster import WHOLE, Allocation, MemoryPlace, bits
from skep.core.events import ProgressReported, TasksSuspended
from skep.core.job import amount_of
from skep.core.model import epochs_of, steps_of
from skep.core.progress import Report
from skep.core.search import SearchSpec
from skep.core.share import MODES
from skep.profiles.sharing import Party
from skep.profiles.speed import Speed
from skep.traces.trace import TraceJob

Place = tuple[int, int] | str
"""Where tasks share: a GPU by node and number, or a share group by its GPUs, of which one member runs at a time."""


class SimTask:
    """One job in the simulator: its work, and its present run."""

    __slots__ = (
        "allocation",
        "batch_size",
        "begun_s",
        "done_s",
        "gpus",
        "halts_as",
        "id",
        "is_elastic",
        "is_suspended",
        "job",
        "mark_s",
        "mode",
        "places",
        "progress_since_s",
        "rate",
        "restart_left_s",
        "row",
        "run",
        "rung",
        "saved_s",
        "saving_since_s",
        "share",
        "shown_rate",
        "starts",
        "target_s",
        "told_share",
        "unit",
        "work_s",
    )

    def __init__(self, row: int, job: TraceJob, speed: Speed | None) -> None:
        spec = job.spec
        self.row = row
        self.job = job
        self.id = spec.id
        shape = spec.shapes[0]
        self.gpus: float = shape.gpus if shape.is_plain else amount_of(shape)
        self.is_elastic = spec.gpu_range is not None
        self.unit: float = self.gpus if speed is None and self.is_elastic else 1.0
        """The factor between work and rate here and those in the state. If the speed is proportional to the GPUs, as it
        is without a speed model, work is in GPU-seconds here, so that equal work has equal numbers."""
        self.work_s = job.work_s * self.unit
        self.allocation: Allocation | None = None
        self.batch_size: int | None = None
        """To which its present run is tuned; None: its own."""
        self.mode = ""
        """The share mode of its allocation."""
        self.places: tuple[Place, ...] = ()
        """Where it shares with others, as far as that affects the speed of any task."""
        self.is_suspended = False
        """True if it makes no progress, even while its memory is still being copied."""
        self.halts_as: MemoryPlace | None = None
        """Where its memory goes or went."""
        self.restart_left_s = 0.0
        """The end of a restart that was in progress when it was suspended."""
        self.starts = 0
        self.begun_s = 0.0
        """Work done when the present run began."""
        self.run = 0
        """Increases whenever a computed milestone becomes stale."""
        self.done_s = 0.0
        """Work done when the present rate began."""
        self.rate = 0.0
        self.shown_rate = 0.0
        """Work per second as the state counts it. If turns are played, the average over the turns."""
        self.target_s = 0.0
        """Work at the next milestone: the end, or where the rate changes."""
        self.progress_since_s = 0.0
        self.saving_since_s = 0.0
        """Periodic checkpoints begin here."""
        self.saved_s = 0.0
        """Work at the last checkpoint before the present rate began."""
        self.share: float | None = None
        """The part of its GPUs' time that it gets; None: it is in no share mode."""
        self.told_share: float | None = None
        """The last reported share."""
        self.rung, self.mark_s = 0, math.inf
        """The next rung of its search, and the work at which it reports its metric there."""

    def work_at(self, now_s: float) -> float:
        if now_s <= self.progress_since_s:
            return self.done_s
        work_s = self.done_s + (now_s - self.progress_since_s) * self.rate
        return work_s if work_s < self.work_s else self.work_s

    def saved_at(self, now_s: float, checkpoint_s: float) -> float:
        """Work at the last checkpoint."""
        if now_s <= self.saving_since_s or self.is_suspended:
            return self.saved_s
        count = (now_s - self.saving_since_s) // checkpoint_s if checkpoint_s else math.inf
        last_s = now_s if count == math.inf else self.saving_since_s + count * checkpoint_s
        return self.work_at(last_s) if last_s >= self.progress_since_s else self.saved_s


def shared_places(task: SimTask) -> tuple[Place, ...]:
    assert task.allocation is not None
    terms = task.allocation.terms
    if terms.mode and MODES[terms.mode].one_group:
        return ("+".join(f"{node}.{mask:x}" for node, mask in task.allocation.masks()),)
    pieces = [piece for piece in task.allocation.slices if piece.milli < WHOLE or piece.mode]
    return tuple(dict.fromkeys((piece.node, gpu) for piece in pieces for gpu in bits(piece.gpus)))


def party_of(task: SimTask, place: Place) -> Party:
    """The terms under which it is there; several of its tasks on one GPU count together."""
    assert task.allocation is not None
    if isinstance(place, str):
        return Party(task.job.spec, task.allocation.terms)
    node, gpu = place
    pieces = [piece for piece in task.allocation.slices if piece.node == node and piece.gpus >> gpu & 1]
    milli, limit = sum(piece.milli for piece in pieces), sum(piece.limit for piece in pieces)
    terms = msgspec.structs.replace(pieces[0], milli=milli, limit=min(limit, WHOLE))
    return Party(task.job.spec, terms, len(pieces))


def batch_in(settings: Mapping[str, Setting]) -> int | None:
    """The batch size that these settings name; other settings change no speed here."""
    found = settings.get("batch_size")
    return found if isinstance(found, int) and found > 0 else None


def progress_of(task: SimTask, report: Report | None = None) -> ProgressReported:
    """When its rate has changed, or it reports progress."""
    unit = task.unit
    share = news_of_share(task)
    done_s, rate, saved_s = task.done_s / unit, task.shown_rate, task.saved_s / unit
    return ProgressReported(task.id, done_s, rate, saved_s, report, share=share)


def news_of_share(task: SimTask) -> float | None:
    """Its share, if that differs from the last reported one; it counts as reported now."""
    if task.share == task.told_share:
        return None
    task.told_share = task.share
    return task.share


def told_share(task: SimTask) -> float | None:
    """The values that a start reports."""
    task.told_share = task.share
    return task.share


def report_of(task: SimTask, done_s: float, speed: Speed | None) -> Report:
    """The progress report of a job with known steps or epochs after this much work. If only epochs are known, each
    counts as a step."""
    spec, part = task.job.spec, done_s / task.work_s
    said_epochs = epochs_of(spec)
    steps = float(steps_of(spec) or said_epochs or 0)
    reference = steps / task.job.work_s
    epochs = None if said_epochs is None else float(said_epochs)
    epoch = None if epochs is None else part * epochs
    curve, step = task.job.curve, part * steps
    series = {} if speed is None else speed.series(spec, step)
    if curve is not None:
        series = {**series, curve.name: curve.at(step)}
    return Report(step, steps, epoch, epochs, task.rate / task.unit * reference, reference, series)


def set_mark(task: SimTask, search: SearchSpec) -> None:
    """It reports next at the first rung that it has not reached yet."""
    steps = float(steps_of(task.job.spec) or epochs_of(task.job.spec) or 0)
    while (mark_s := search.rung(task.rung) / steps * task.work_s) <= task.done_s:
        task.rung += 1
    task.mark_s = mark_s


def has_steps(task: SimTask) -> bool:
    spec = task.job.spec
    return bool(steps_of(spec) or epochs_of(spec)) and 0 < task.work_s < math.inf


def halted_as(task: SimTask, memory: MemoryPlace) -> TasksSuspended:
    return TasksSuspended(task.id, task.done_s / task.unit, memory, saved_s=task.saved_s / task.unit)
