"""One training loop: where it continues, when it saves, when it stops."""

from __future__ import annotations

import os
import time
from pathlib import Path

from skep.train import data, state
from skep.train.asked import Asked
from skep.train.checkpoints import Checkpoints, warn
from skep.train.link import link
from skep.train.memory import bound_gpu_memory
from skep.train.progress import ProgressFile
from skep.train.ranks import Alone, find_ranks, rank_and_size
from skep.train.saving import SavePlace, Saving
from skep.train.stop import STOPPED, Stopped, StopSignal

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing alone would be a quarter of the cost
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    Batch = TypeVar("Batch")


def join(
    *,
    every_s: float | None = 600,
    save: Callable[[Path], None] | None = None,
    load: Callable[[Path], None] | None = None,
    **kept: Any,
) -> TrainingJob:
    """Join the Skep job that this process belongs to; outside of one the loop simply runs.

    every_s: seconds between checkpoints; 0 after every step, None only when asked to stop.

    save, load: for what cannot be kept by name; both get a folder. `save` is called on rank 0, `load` on every rank.

    kept: by any name, what is saved and restored: objects with state_dict and load_state_dict (models, optimizers,
    schedulers, …), dicts, lists, numpy arrays and random generators. Restored in place when the loop begins.
    """
    if every_s is not None and not every_s >= 0:
        raise ValueError(f"every_s must be a number of seconds or None, not {every_s!r}")
    if (save is None) != (load is None):
        raise ValueError("save and load belong together: give both or none")
    things = {name: state.kept(name, thing) for name, thing in kept.items()}
    return TrainingJob(things, save, load, every_s)


class TrainingJob:
    """What `join` returns. One loop per process: either `steps`, or `epochs` with `batches` inside."""

    def __init__(
        self,
        kept: dict[str, state.KeptState],
        save: Callable[[Path], None] | None,
        load: Callable[[Path], None] | None,
        every_s: float | None,
    ) -> None:
        folder, task = _folder("SKEP_CHECKPOINT_DIR"), _folder("SKEP_TASK_DIR")
        self.is_managed = folder is not None or task is not None
        self._checkpoint_folder = folder
        self._progress = ProgressFile(task if _speaks_for_its_task() else None)
        self._asked = Asked(task)
        self._link = link(task if _speaks_for_its_task() else None)
        self._settings: dict[str, Any] = {}
        self._settings_number = 0
        self._saving = Saving(kept, save, load)
        self._every_s = every_s
        self._ranks = Alone()
        self._stop = StopSignal()
        self._place = SavePlace()
        self._has_begun = False
        self._epochs: int | None = None
        self._drawn_epoch: int | None = None
        self._is_wanted = False
        self._asked.note_saved()
        self._saved_at_s = 0.0
        self._total: int | None = None
        bound_gpu_memory()
        if self.is_managed and not self._stop.install():
            warn("join() was not called in the main thread: stop signals are not handled, and a stop will lose steps")

    @property
    def rank(self) -> int:
        return rank_and_size()[0]

    @property
    def world_size(self) -> int:
        return rank_and_size()[1]

    @property
    def step(self) -> int:
        """Steps done so far, including those of earlier launches."""
        return self._place.step

    @property
    def should_stop(self) -> bool:
        """True if this rank was asked to stop. The loop ends by itself after the step; use this for long work inside
        one."""
        return self._stop.is_asked

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the scheduler has chosen for this job, such as a batch size; empty if there are none. They
        change between two steps only, and then on all ranks."""
        return self._settings

    def checkpoint(self) -> None:
        """Request a checkpoint after the present step. A request by one rank is enough."""
        self._is_wanted = True

    def indices(self, step: int, *, of: int, batch: int, seed: int = 0) -> list[int]:
        """The samples, out of `of`, that this rank takes in this step: see `skep.train.indices`."""
        return data.indices(step, of=of, batch=batch, seed=seed, rank=self.rank, world_size=self.world_size)

    def report(self, loss: Any = None, samples: float = 0, **values: Any) -> None:
        """Report progress: the loss, the samples this rank has processed since the last report, other numbers.

        Cheap enough for every step: it is written twice a second at most.
        """
        known = values if loss is None else {"loss": loss, **values}
        if self._progress.report(self.step, known, samples * self._ranks.size):
            self._tell()

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the remaining steps; `total` includes the steps done before."""
        self._total = total
        self._begin(total, lambda place: place.step)
        try:
            while self.step < total:
                yield self.step
                self._place.step += 1
                self._between_steps(is_last=self.step >= total)
            self._finish()
        finally:
            self._end()

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the remaining epochs; the first may be one that was interrupted in the middle."""
        self._begin(count, lambda place: place.epoch)
        self._epochs = count
        try:
            while self._place.epoch < count:
                yield self._place.epoch
                self._place.next_epoch()
                self._between_steps(is_last=self._place.epoch >= count)
            self._finish()
        finally:
            self._end()

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The remaining batches of this epoch; each counts as a step. The loader may shuffle by a global random source,
        by a generator of its own or by set_epoch: it continues where it was."""
        if self._epochs is None or self._drawn_epoch == self._place.epoch:
            raise RuntimeError("job.batches() belongs inside `for epoch in job.epochs(…)`, once per epoch")
        self._drawn_epoch = self._place.epoch
        length = data.batches_per_epoch(loader)
        done = self._place.resume_in(length)
        self._total = self.step + length - done + (self._epochs - self._place.epoch - 1) * length
        for batch in self._saving.draw(loader, self._place, done):
            yield batch
            self._place.step += 1
            self._place.batch += 1
            self._between_steps(is_last=self.step >= self._total)

    def _begin(self, total: int, done: Callable[[SavePlace], int]) -> None:
        if self._has_begun:
            raise RuntimeError("a job has one training loop: call steps() or epochs() once")
        self._has_begun = True
        if not self.is_managed:
            return
        self._ranks = find_ranks()
        most, least = self._ranks.agree(total, -total)
        if most != -least:
            raise ValueError(f"all ranks must do equally many: one has {-least}, another {most}")
        if self._checkpoint_folder is not None:
            folder = self._own_folder(self._checkpoint_folder)
            self._saving.restore(Checkpoints(folder, _launch()), self._ranks, self._place)
        self._saved_at_s = time.monotonic()
        self._progress.restart_clock()
        self._between_steps(is_last=done(self._place) >= total)
        self._tell()

    def _own_folder(self, folder: Path) -> Path:
        """Ranks that do not know each other (no torch.distributed) keep separate checkpoints."""
        is_apart = self._ranks.size == 1 and self.rank > 0
        return folder / f"rank-{self.rank}" if is_apart else folder

    def _between_steps(self, is_last: bool) -> None:
        """Between two steps: all ranks save, or stop, or continue. If asked to stop in the last step, they just
        finish."""
        if not self.is_managed:
            return
        is_asked, number = self._asked.look(), self._asked.number
        wants_save = is_asked or self._is_wanted or self._is_due()
        is_stopping, is_wanted, newest, oldest = self._ranks.agree(self._stop.is_asked, wants_save, number, -number)
        if newest == -oldest != self._settings_number:  # all ranks have the same settings
            self._settings, self._settings_number = self._asked.settings, number
        if (is_stopping or is_wanted) and not is_last:
            self._save()
        if self._progress.is_due():  # also if the script reports nothing: its steps show how fast it is
            self._tell()
        if is_stopping and not is_last:
            self._stop.is_asked = True  # also if only another rank was
            self._tell(left=True)
            self._ranks.leave(STOPPED)
            raise Stopped

    def _is_due(self) -> bool:
        """By the clock of rank 0 alone: clocks differ."""
        is_clock = self._ranks.rank == 0 and self._every_s is not None
        return is_clock and time.monotonic() - self._saved_at_s >= (self._every_s or 0)

    def _save(self) -> None:
        self._saving.save(self._ranks, self._place)
        self._is_wanted = False
        self._asked.note_saved()
        self._saved_at_s = time.monotonic()

    def _finish(self) -> None:
        """Save once more: whatever the script still does with its result, a restart need not train again for it."""
        if self.is_managed:
            self._save()
            self._tell(done=True)
            self._ranks.part()

    def _end(self) -> None:
        """The flag stays set while stopping: a second SIGTERM must not interrupt the exit."""
        if not self._stop.is_asked:
            self._stop.restore()

    def _tell(self, left: bool = False, done: bool = False) -> None:
        saved = self._saving.saved_step
        self._progress.write(step=self.step, steps=self._total, checkpoint_step=saved, left=left, done=done)


def _folder(variable: str) -> Path | None:
    name = os.environ.get(variable, "")
    return Path(name) if name else None


def _launch() -> int | None:
    number = os.environ.get("SKEP_LAUNCH", "")
    return int(number) if number.isdigit() else None


def _speaks_for_its_task() -> bool:
    """The workers that torchrun starts share the folder of one task: the first of them writes there."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"
