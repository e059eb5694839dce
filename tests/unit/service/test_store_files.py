"""The files of the store: gone before the start, gone while a server runs."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld, request
from test_live_service import Quiet

from skep.core.errors import InputError
from skep.files.untrusted import Gone
from skep.service.files import open_store
from skep.service.live import Live
from skep.service.turn import Busy


def folder_with_jobs(folder: Path) -> Path:
    LiveWorld(folder).store.close()
    (folder / "jobs" / "1").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("how", ["is missing", "is empty"])
def test_a_lost_store_is_not_begun_anew_by_itself(tmp_path: Path, how: str) -> None:
    store = folder_with_jobs(tmp_path) / "skep.db"
    store.unlink() if how == "is missing" else store.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError) as raised:
            open_store(tmp_path)
        assert str(raised.value) == f"{store} {how}, but there are files of 1 job in {tmp_path / 'jobs'}"
        assert "skep restore" in raised.value.hint
        assert "--new" in raised.value.hint
    made = open_store(tmp_path, is_new=True)
    assert made.log_seq == 0
    made.close()


def test_a_journal_without_its_store_is_kept(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    world = LiveWorld(tmp_path / "one")
    shutil.copy(tmp_path / "one" / "skep.db-wal", tmp_path / "two")
    world.store.close()
    with pytest.raises(InputError, match=r"its journal .* is there"):
        open_store(tmp_path / "two")
    open_store(tmp_path / "two", is_new=True).close()
    assert (tmp_path / "two" / "skep.db-wal.lost").stat().st_size


def test_new_is_for_a_folder_without_a_store(tmp_path: Path) -> None:
    folder_with_jobs(tmp_path)
    with pytest.raises(InputError, match="is a store already"):
        open_store(tmp_path, is_new=True)
    open_store(tmp_path).close()


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def replace(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


def lose_journal(folder: Path) -> None:
    (folder / "skep.db-wal").unlink()


@pytest.mark.parametrize("hurt", [remove, replace, lose_journal])
def test_nothing_is_acknowledged_once_the_files_are_gone(tmp_path: Path, hurt: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    faults: list[Exception] = []
    live = Live(
        open_store(folder), lambda live: Quiet(), lambda: 1000.0, cluster=("test", "1x4"), on_fault=faults.append
    )
    assert live.submit([request()], "ann").result(60) == ["1"]
    hurt(folder)
    with pytest.raises(Busy, match="deleted, replaced or unmounted"):
        live.submit([request()], "ann").result(60)
    live.close()
    assert [type(fault) for fault in faults] == [Gone]


def test_it_is_noticed_where_nobody_asks(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    noticed = threading.Event()
    live = Live(
        open_store(folder), lambda live: Quiet(), lambda: 1000.0, cluster=("t", "1x4"), on_fault=lambda _: noticed.set()
    )
    remove(folder)
    assert noticed.wait(60)
    live.close()
