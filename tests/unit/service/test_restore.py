"""`skep restore`: checked first, the old store kept, and nothing touched where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.damage import flip_bits
from click.testing import CliRunner
from live_world import LiveWorld, request

from skep.cli.restore import restore
from skep.core.errors import InputError
from skep.server.datadir import DataDir
from skep.service.files import open_store
from skep.service.restore import put_back
from skep.service.store import JobFilter, Store


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of a store with one job; the folder has three by now."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    world = LiveWorld(data)
    world.submit(request("first"))
    world.store.backup(tmp_path / "copy.db")
    world.submit(request("second"), request("third"))
    world.store.close()
    (data / "jobs" / "3").mkdir(parents=True)
    return tmp_path / "copy.db"


def names(path: Path) -> list[str]:
    store = Store(path)
    found = [row.name for row in store.jobs(JobFilter(all=True), 100, None)]
    store.close()
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_backup_is_in_the_place_of_the_store_which_is_kept(backup: Path) -> None:
    data = backup.with_name("data")
    kept, open_jobs = put_back(backup, data, "now")
    assert open_jobs == 1
    assert names(data / "skep.db") == ["first"]
    assert kept == data / "skep-before-now.db"
    assert names(kept) == ["third", "second", "first"]
    assert (data / "skep.db").stat().st_mode & 0o777 == 0o600
    open_store(data).close()


def test_where_the_store_is_gone_too(backup: Path) -> None:
    data = backup.with_name("data")
    for path in data.glob("skep.db*"):
        path.unlink()
    assert put_back(backup, data, "now") == (None, 1)
    assert names(data / "skep.db") == ["first"]


def empty(file: Path) -> None:
    file.write_bytes(b"")


def no_database(file: Path) -> None:
    file.write_text("nothing of the kind" * 1000)


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damaged(file: Path) -> None:
    import random

    for seed in range(40):
        flip_bits(file, random.Random(seed))


def missing(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("hurt", [empty, no_database, half, damaged, missing])
def test_a_file_that_is_not_a_whole_backup_changes_nothing(backup: Path, hurt: object) -> None:
    data = backup.with_name("data")
    before = files(data)
    hurt(backup)  # type: ignore[operator]
    with pytest.raises(InputError) as raised:
        put_back(backup, data, "now")
    assert str(backup) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert files(data) == before


def test_the_store_itself_is_not_a_backup_of_it(backup: Path) -> None:
    store = backup.with_name("data") / "skep.db"
    with pytest.raises(InputError, match="is the store itself"):
        put_back(store, store.parent, "now")
    assert names(store) == ["third", "second", "first"]


def test_not_while_a_server_runs(backup: Path) -> None:
    data = backup.with_name("data")
    before = files(data)
    with DataDir(data):
        ran = CliRunner().invoke(restore, [str(backup), "--data", str(data)])
    assert isinstance(ran.exception, InputError)
    assert "is in use by another server" in str(ran.exception)
    assert {name: content for name, content in files(data).items() if name != "lock"} == before
    ran = CliRunner().invoke(restore, [str(backup), "--data", str(data)])
    assert ran.exit_code == 0, ran.output
    assert "open jobs in it: 1" in ran.output
