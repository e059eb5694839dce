"""`skep.train` reaches every Python, whether Skep is installed there or not."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import skep.train
from skep.engines.local.begin import prepare_library, with_library

TRAIN = Path(skep.train.__path__[0])
USE = """
import sys
from skep import train
job = train.join(state={"n": 1})
for step in job.steps(3):
    job.report(loss=1.0 / (step + 1))
assert "msgspec" not in sys.modules and "skep.core" not in sys.modules
print(train.__file__)
"""


def interpreters() -> list[str]:
    """Every Python from 3.9 on that this machine has, one of each version; this one at least."""
    versions = (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3")
    named = filter(None, (shutil.which(f"python3.{minor}") for minor in range(9, 15)))
    found = {sys.version_info.minor: sys.executable}
    for path in [*map(str, versions), *named]:
        ran = subprocess.run(
            [path, "-S", "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=False
        )
        if ran.returncode == 0 and int(ran.stdout) >= 9:  # else it is too old, or only stands for one that is not there
            found.setdefault(int(ran.stdout), path)
    return [found[version] for version in sorted(found)]


@pytest.mark.parametrize("python", interpreters())
def test_it_works_in_a_python_without_skep(tmp_path: Path, python: str) -> None:
    library = prepare_library(tmp_path / "python")
    env = with_library({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, library)
    ran = subprocess.run([python, "-S", "-c", USE], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(library))


def test_where_skep_is_installed_the_rest_of_it_is_found_too(tmp_path: Path) -> None:
    env = with_library(dict(os.environ), prepare_library(tmp_path))
    code = "import skep.core.model; from skep import Client, train; print(train.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(tmp_path))


@pytest.mark.parametrize("file", sorted(TRAIN.glob("*.py")), ids=lambda path: path.name)
def test_its_syntax_is_that_of_python_3_9(file: Path) -> None:
    ast.parse(file.read_text("utf-8"), feature_version=(3, 9))


def test_it_is_written_once_and_readable_by_every_account(tmp_path: Path) -> None:
    library = prepare_library(tmp_path)
    before = library.stat().st_ctime_ns
    assert prepare_library(tmp_path) == library
    assert library.stat().st_ctime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [library.name]
    assert stat.S_IMODE((library / "skep" / "train" / "job.py").stat().st_mode) == 0o644
    assert stat.S_IMODE(library.stat().st_mode) == 0o755


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "left by an earlier version"])
def test_every_account_reaches_it_whatever_the_umask_of_the_server(tmp_path: Path, is_made: bool) -> None:
    folder = tmp_path / "python"
    before = os.umask(0o077)
    try:
        if not is_made:
            prepare_library(folder)
            folder.chmod(0o700)
        library = prepare_library(folder)
    finally:
        os.umask(before)
    closed = [path for path in (folder, library, *library.rglob("*")) if not path.stat().st_mode & stat.S_IROTH]
    assert closed == []


def test_paths_of_the_job_come_behind_it(tmp_path: Path) -> None:
    assert with_library({"PYTHONPATH": "/mine"}, tmp_path)["PYTHONPATH"] == f"{tmp_path}{os.pathsep}/mine"
    assert with_library({}, tmp_path)["PYTHONPATH"] == str(tmp_path)
