from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.core.errors import InputError, NotFound
from skep.engines.local.disk import write_whole
from skep.engines.local.folder import Folder, safe_name


@given(st.text(max_size=300))
def test_any_name_is_one_component(name: str) -> None:
    safe = safe_name(name)
    assert 0 < len(safe) <= 120
    assert safe.isascii()
    assert "/" not in safe
    assert "\0" not in safe
    assert not safe.startswith(".")


@given(st.text(max_size=200), st.text(max_size=200))
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("17", "17"), ("17/worker-0", "17%2Fworker-0"), ("..", "%2E."), ("", "%"), ("%2E.", "%252E."), ("a b", "a%20b")],
)
def test_plain_names_stay_readable(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_paths_and_launches(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare()
    folder.prepare()  # A second time changes nothing.
    assert folder.reports.is_fifo()
    for name in ("10", "2", ".3", "checkpoint", "work", "²"):
        (folder.job("1") / name).mkdir(parents=True)
    assert folder.launches("1") == [2, 10]
    assert folder.launches("unknown") == []
    assert folder.task("1", 2, "w-0") == tmp_path / "jobs/1/2/w-0"
    with pytest.raises(NotFound, match="the files of launch 2 are gone"):
        folder.record("1", 2)
    assert sorted(folder.all_launches()) == [tmp_path / "jobs/1/10", tmp_path / "jobs/1/2"]
    folder.put_aside("1")
    assert folder.launches("1") == []


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used: Not a directory"):
        Folder(tmp_path / "file").prepare()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reports").write_text("")
    with pytest.raises(InputError, match="should be a fifo"):
        Folder(tmp_path / "data").prepare()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_whole(str(tmp_path / "a"), "one")
    write_whole(str(tmp_path / "a"), "two", is_durable=True)
    assert (tmp_path / "a").read_text() == "two"
    assert os.listdir(tmp_path) == ["a"]


def test_tasks_that_were_started_one_by_one_are_forgotten_with_their_job(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for job in ("1", "1/w-0", "1/w-1", "11", "11/w-0"):
        folder.launch(job, 1).mkdir(parents=True)
    folder.put_aside("1")
    folder.remove_aside()
    assert sorted(path.name for path in folder.jobs.iterdir()) == ["11", "11%2Fw-0"]


def test_a_folder_of_any_depth_is_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.launch("1", 1).mkdir(parents=True)
    deep = "import os, sys; os.chdir(sys.argv[1])\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"
    subprocess.run([sys.executable, "-c", deep, str(folder.launch("1", 1))], check=True)
    folder.put_aside("1")
    folder.remove_aside()
    assert os.listdir(folder.jobs) == []
