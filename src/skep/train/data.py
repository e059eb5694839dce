"""The order of the data as a function of seed and step, and how to continue in the middle of a DataLoader."""

from __future__ import annotations

import functools
import os
import random  # noqa: TID251 - drawn from a seed
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def indices(step: int, *, of: int, batch: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> list[int]:
    """The samples, out of `of`, that this rank takes in this step; `batch` counts those of all ranks together.

    Each epoch is a new order of all samples; an incomplete last batch is left out of that epoch. The samples of a step
    are the same for any number of ranks: a job that was resized still sees each sample at most once per epoch.
    """
    if not 0 < batch <= of:
        raise ValueError(f"a batch of {batch} out of {of} samples is not possible")
    if batch % world_size:
        raise ValueError(f"a batch of {batch} cannot be split equally among {world_size} ranks")
    epoch, place = divmod(step, of // batch)
    share = batch // world_size
    start = place * batch + rank * share
    return _order(seed, epoch, of)[start : start + share]


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, of: int) -> list[int]:
    """Made of random() alone, the one method whose sequence Python guarantees across versions."""
    draw = random.Random(f"{seed}/{epoch}").random
    keys = [draw() for _ in range(of)]
    return sorted(range(of), key=keys.__getitem__)


def batches_per_epoch(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        raise TypeError("job.batches() needs a loader with a length; use job.steps() for an endless one") from None


def set_epoch(loader: Any, epoch: int) -> None:
    """DistributedSampler and similar ones shuffle by (seed, epoch), so they need the epoch."""
    for sampler in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if sampler is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


def generators(loader: Any) -> list[Any]:
    """The generators that a loader draws from instead of the global one."""
    found = [getattr(each, "generator", None) for each in (loader, getattr(loader, "sampler", None))]
    unique = {id(each): each for each in found if hasattr(each, "get_state")}
    return list(unique.values())


def shield(loader: Any) -> None:
    """Keeps the loader's worker processes alive through a stop, see `shield_worker`."""
    if getattr(loader, "num_workers", 0) and getattr(loader.worker_init_fn, "func", None) is not shield_worker:
        loader.worker_init_fn = functools.partial(shield_worker, then=loader.worker_init_fn)


def shield_worker(worker: int, then: Callable[[int], None] | None = None) -> None:
    """A `worker_init_fn`: the worker handles SIGTERM from its parent only.

    A stop reaches every process of a task. A worker that dies of it makes the DataLoader raise in the middle of the
    step that is to be finished and saved.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_heed_parent, args=(os.getppid(),), daemon=True).start()
    if then is not None:
        then(worker)


def _heed_parent(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)
