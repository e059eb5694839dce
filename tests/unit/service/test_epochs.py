"""A server acts under a number that grows with every start; one that was replaced does nothing any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.engines import FakeEngine, Machine, NoEngine

from skep.core.actions import Action
from skep.core.events import ClusterChanged, PolicyChanged
from skep.core.ports import StaleEpoch, Wanted
from skep.core.reports import Fenced
from skep.service.live import Live
from skep.service.store import Store
from skep.service.turn import Busy
from skep.service.writer import Writer


def test_every_start_takes_a_later_epoch_and_writes_it_down_first(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    first = world.writer.epoch
    world.crash()
    assert world.writer.epoch == first + 1
    assert world.store.meta("epoch") == str(first + 1)
    world.store.close()


def test_an_older_store_goes_beyond_what_the_engine_has_seen(tmp_path: Path) -> None:
    """As after a backup was put back."""
    machine = Machine()
    machine.epoch = 41
    live = Live(
        Store(tmp_path / "skep.db"),
        lambda live: FakeEngine(live.tell, live.writer.state.cluster, machine),
        lambda: 0.0,
        cluster=("1x8", "1x8"),
    )
    assert machine.epoch == live.writer.epoch == 42
    live.close()


class Noting(FakeEngine):
    epochs: list[int]

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        self.epochs = [*getattr(self, "epochs", []), epoch]
        super().execute(epoch, at_s, actions)


def test_a_server_that_was_replaced_ends_and_its_jobs_go_on(tmp_path: Path) -> None:
    faults: list[Exception] = []
    machine = Machine()
    live = Live(
        Store(tmp_path / "skep.db"),
        lambda live: Noting(live.tell, live.writer.state.cluster, machine),
        lambda: 0.0,
        cluster=("1x8", "1x8"),
        on_fault=faults.append,
    )
    assert live.submit([request()], "ann").result(60) == ["1"]
    assert isinstance(live.engine, Noting)
    assert set(live.engine.epochs) == {live.writer.epoch}
    machine.epoch += 1  # another server
    with pytest.raises((StaleEpoch, Busy), match="another server has taken over"):
        live.submit([request()], "ann").result(60)
    with pytest.raises(Busy):
        live.submit([request()], "ann").result(60)
    assert isinstance(faults[0], StaleEpoch)
    assert machine.runs["1"].end is None
    live.close()


def test_an_engine_that_was_fenced_ends_its_server(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    with pytest.raises(StaleEpoch, match="epoch 7"):
        world.tell(Fenced(7))
    world.store.close()


def test_a_store_has_an_id_that_it_keeps_and_tells_the_engine(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    class Asked(NoEngine):
        def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
            seen.append((wanted.store, wanted.is_new))

    for folder, is_new in (("a", False), ("a", False), ("b", True)):
        (tmp_path / folder).mkdir(exist_ok=True)
        store = Store(tmp_path / folder / "skep.db")
        opening = (ClusterChanged("test", "1x1"), PolicyChanged("fifo"))
        Writer(store, 0.0, opening=opening).start(Asked(), is_new=is_new)
        store.close()
    (first, _), (second, _), (other, is_taken) = seen
    assert first == second != other
    assert len(first) == 16
    assert is_taken
