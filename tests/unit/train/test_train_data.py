"""The order of the data is a function of seed and step, whatever the number of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.train import indices
from skep.train.data import generators, set_epoch


@given(of=st.integers(8, 60), seed=st.integers(0, 5), world_size=st.sampled_from([1, 2, 4, 8]))
def test_ranks_share_the_batch_of_one_rank_and_an_epoch_has_no_sample_twice(
    of: int, seed: int, world_size: int
) -> None:
    epoch = [indices(step, of=of, batch=8, seed=seed) for step in range(of // 8)]
    flat = [index for batch in epoch for index in batch]
    assert len(set(flat)) == len(flat) == of // 8 * 8
    assert set(flat) <= set(range(of))
    for step, batch in enumerate(epoch):
        parts = [
            indices(step, of=of, batch=8, seed=seed, rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        assert [index for part in parts for index in part] == batch


def test_the_order_is_pinned_and_changes_with_epoch_and_seed() -> None:
    """Pinned: a new version of Python or Skep must not change the data of a job that is under way."""
    assert indices(0, of=10, batch=5, seed=3) == PINNED
    assert indices(2, of=10, batch=5, seed=3) != indices(0, of=10, batch=5, seed=3)
    assert indices(0, of=10, batch=5, seed=4) != indices(0, of=10, batch=5, seed=3)


PINNED = [3, 8, 9, 1, 0]


@pytest.mark.parametrize(
    ("of", "batch", "world_size", "message"),
    [(4, 8, 1, "out of 4 samples"), (4, 0, 1, "batch of 0"), (9, 9, 2, "equally among 2 ranks")],
)
def test_impossible_batches_are_refused(of: int, batch: int, world_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        indices(0, of=of, batch=batch, world_size=world_size)


class Sampler:
    def __init__(self) -> None:
        self.epoch = -1
        self.generator = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Loader:
    def __init__(self) -> None:
        self.sampler = Sampler()
        self.generator = None


def test_samplers_are_told_the_epoch_and_a_loader_without_generators_has_none() -> None:
    loader = Loader()
    set_epoch(loader, 3)
    assert loader.sampler.epoch == 3
    assert generators(loader) == []
    set_epoch([1, 2], 3)
