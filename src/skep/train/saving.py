"""Saving and restoring one job together with its other ranks, so that it continues exactly where it was."""

from __future__ import annotations

from skep.train import data, state
from skep.train.checkpoints import Checkpoints, rank_file, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Any, TypeVar

    from skep.train.ranks import Alone

    Batch = TypeVar("Batch")

SHARED = "shared.bin"


class SavePlace:
    """The position of the loop."""

    def __init__(self, step: int = 0, epoch: int = 0, batch: int = 0, of: int = 0) -> None:
        self.step = step
        self.epoch = epoch
        self.batch = batch  # batches done in this epoch
        self.of = of  # out of how many

    def next_epoch(self) -> None:
        self.epoch, self.batch, self.of = self.epoch + 1, 0, 0

    def resume_in(self, length: int) -> int:
        """How many batches of an epoch of this length are done: after a resize the same part of it."""
        if self.of and self.of != length:
            self.batch = self.batch * length // self.of
        self.of = length
        return self.batch


class Saving:
    def __init__(
        self,
        kept: dict[str, state.KeptState],
        save: Callable[[Path], None] | None,
        load: Callable[[Path], None] | None,
    ) -> None:
        self._kept = kept
        self._save_user = save
        self._load_user = load
        self._checkpoints: Checkpoints | None = None
        self._saved: dict[str, int] | None = None
        self._sources: list[Any] = []  # the generators of the loader in use
        self._epoch_random: dict[str, Any] | None = None  # as it was when the epoch began
        self._resumed_random: dict[str, Any] | None = None  # as it was in the checkpoint, until the loader has used it

    @property
    def saved_step(self) -> int | None:
        return self._saved["step"] if self._saved is not None else None

    # -- restoring

    def restore(self, checkpoints: Checkpoints, ranks: Alone, place: SavePlace) -> None:
        """Rank 0 chooses the checkpoint for all: two ranks must never continue from different ones."""
        self._checkpoints = checkpoints
        found = checkpoints.latest() if ranks.rank == 0 else None
        (number,) = ranks.agree(found["number"] if found is not None else 0)
        if number == 0:
            return
        manifest = checkpoints.manifest(number)
        for field, value in manifest["place"].items():
            setattr(place, field, value)
        if manifest["world_size"] != ranks.size and ranks.rank == 0:
            warn(f"continuing at step {place.step} with {ranks.size} ranks instead of {manifest['world_size']}")
        self._put_shared(checkpoints, number)
        self._put_own(checkpoints, number, ranks.rank)
        self._saved = dict(vars(place))

    def _put_shared(self, checkpoints: Checkpoints, number: int) -> None:
        shared = checkpoints.read(number, SHARED)
        for name, thing in self._kept.items():
            if thing.is_shared and _has(shared, name):
                thing.put(shared[name])
        if self._load_user is not None:
            self._load_user(checkpoints.user_folder(number))

    def _put_own(self, checkpoints: Checkpoints, number: int, rank: int) -> None:
        """A rank that did not exist then takes what rank 0 had, but has its own random numbers."""
        own = checkpoints.read(number, rank_file(rank))
        is_new = own is None
        own = checkpoints.read(number, rank_file(0)) if is_new else own
        for name, thing in self._kept.items():
            if not thing.is_shared and not (is_new and thing.is_chance) and _has(own["kept"], name):
                thing.put(own["kept"][name])
        if not is_new:
            self._epoch_random = own["epoch_random"]
            self._resumed_random = own["random"]
            state.restore_random(own["random"])

    # -- saving

    def save(self, ranks: Alone, place: SavePlace) -> None:
        """A failure is a warning: training continues without this checkpoint."""
        if self._checkpoints is None or vars(place) == self._saved:
            return
        checkpoints, step = self._checkpoints, place.step
        error = _attempt(lambda: self._write(checkpoints, ranks.rank, step))
        (is_failed,) = ranks.agree(error is not None)
        if ranks.rank == 0 and not is_failed:
            about = {"place": vars(place), "world_size": ranks.size}
            files = [SHARED, *(rank_file(rank) for rank in range(ranks.size))]
            error = _attempt(lambda: checkpoints.commit(step, about, files))
        (is_failed,) = ranks.agree(error is not None)
        if error is not None:
            warn(f"no checkpoint at step {step}: {error}")
        if is_failed and ranks.rank == 0:
            checkpoints.discard(step)
        if not is_failed:
            self._saved = dict(vars(place))

    def _write(self, checkpoints: Checkpoints, rank: int, step: int) -> None:
        """The state of shared objects is read on every rank: some gather it from all of them."""
        folder = checkpoints.start(step)
        shared = {name: thing.get() for name, thing in self._kept.items() if thing.is_shared}
        own = {name: thing.get() for name, thing in self._kept.items() if not thing.is_shared}
        random = state.random_state(self._sources)
        checkpoints.write(step, rank_file(rank), {"kept": own, "random": random, "epoch_random": self._epoch_random})
        if rank == 0:
            checkpoints.write(step, SHARED, shared)
            if self._save_user is not None:
                (folder / "user").mkdir(exist_ok=True)
                self._save_user(folder / "user")

    # -- a loader

    def draw(self, loader: Iterable[Batch], place: SavePlace, done: int) -> Iterator[Batch]:
        """The batches of this epoch after the first `done`.

        The loader is started as it was then, with the random state of then, and its first batches are drawn again and
        dropped: so it shuffles and augments as it would have done without the interruption.
        """
        data.set_epoch(loader, place.epoch)
        data.shield(loader)
        self._sources = data.generators(loader)
        resumed, self._resumed_random = self._resumed_random, None
        if resumed is not None:
            state.restore_generators(resumed, self._sources)
        now = resumed or state.random_state(self._sources)
        if done == 0 or self._epoch_random is None:
            self._epoch_random = state.random_state(self._sources)
        rest = self._begin_again(loader, done, self._epoch_random) if done < place.of else iter(())
        if done:
            state.restore_random(now, self._sources)
        yield from rest

    def _begin_again(self, loader: Iterable[Batch], done: int, random: dict[str, Any]) -> Iterator[Batch]:
        if done:
            state.restore_random(random, self._sources)
        rest = iter(loader)
        for _ in range(done):
            next(rest)
        return rest


def _has(states: dict[str, Any], name: str) -> bool:
    if name not in states:
        warn(f"the checkpoint has no {name!r}: it stays as the script made it")
    return name in states


def _attempt(action: Callable[[], None]) -> Exception | None:
    """Returns the error instead of raising it: the other ranks must learn of it first."""
    try:
        action()
    except Exception as error:
        return error
    return None
