"""Several ranks save and restore together; here they are threads that agree at a barrier."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skep.train import job, ranks, state
from skep.train.checkpoints import Checkpoints
from skep.train.saving import SavePlace, Saving


class Crew:
    """As many ranks as wanted, in this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.brought: dict[int, tuple[int, ...]] = {}
        self.barrier = threading.Barrier(size, timeout=60)

    def run(self, action: Callable[[Member], Any]) -> list[Any]:
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(action, [Member(self, rank) for rank in range(self.size)]))


class Member(ranks.Alone):
    def __init__(self, crew: Crew, rank: int) -> None:
        self._crew, self.rank, self.size = crew, rank, crew.size

    def agree(self, *values: int) -> tuple[int, ...]:
        self._crew.brought[self.rank] = values
        self._crew.barrier.wait()
        agreed = tuple(max(each) for each in zip(*self._crew.brought.values(), strict=True))
        self._crew.barrier.wait()
        return agreed


def saving(notes: list[Any], lots: random.Random) -> Saving:
    return Saving({"notes": state.kept("notes", notes), "lots": state.kept("lots", lots)}, None, None)


def save(folder: Path, size: int, broken: int | None = None) -> list[int | None]:
    def one(member: Member) -> int | None:
        notes: list[Any] = [f"of rank {member.rank}", threading.Lock() if member.rank == broken else 1]
        mine, place = saving(notes, random.Random(member.rank)), SavePlace()
        mine.restore(Checkpoints(folder), member, place)
        place.step = 7
        mine.save(member, place)
        return mine.saved_step

    return Crew(size).run(one)


def restore(folder: Path, size: int) -> list[tuple[int, str, float]]:
    def one(member: Member) -> tuple[int, str, float]:
        notes: list[Any] = ["new"]
        lots, place = random.Random(100 + member.rank), SavePlace()
        saving(notes, lots).restore(Checkpoints(folder), member, place)
        return place.step, notes[0], lots.random()

    return Crew(size).run(one)


def test_each_rank_gets_its_own_back(tmp_path: Path) -> None:
    assert save(tmp_path, 3) == [7, 7, 7]
    assert restore(tmp_path, 3) == [(7, f"of rank {rank}", random.Random(rank).random()) for rank in range(3)]


def test_after_a_resize_new_ranks_take_what_rank_0_had_but_draw_their_own_lots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1)
    assert restore(tmp_path, 2) == [
        (7, "of rank 0", random.Random(0).random()),
        (7, "of rank 0", random.Random(101).random()),
    ]
    assert capsys.readouterr().err == "skep.train: continuing at step 7 with 2 ranks instead of 1\n"


@pytest.mark.parametrize("broken", [0, 1])
def test_when_one_rank_cannot_write_there_is_no_checkpoint_for_any(
    tmp_path: Path, broken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert save(tmp_path, 2, broken) == [None, None]
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err.startswith("skep.train: no checkpoint at step 7: cannot pickle")


def test_a_name_that_the_checkpoint_does_not_know_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1)
    more = Saving({"added": state.kept("added", [])}, None, None)
    more.restore(Checkpoints(tmp_path), ranks.Alone(), SavePlace())
    assert "the checkpoint has no 'added'" in capsys.readouterr().err


def test_ranks_that_plan_different_numbers_of_steps_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEP_TASK_DIR", str(tmp_path))
    crew = Crew(2)
    crew.barrier = threading.Barrier(1)
    crew.brought[1] = (6, -6)
    monkeypatch.setattr(job, "find_ranks", lambda: Member(crew, 0))
    joined = job.join()
    try:
        with pytest.raises(ValueError, match="all ranks must do equally many: one has 5, another 6"):
            next(iter(joined.steps(5)))
    finally:
        joined._stop.restore()
