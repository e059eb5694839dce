"""Container images made of this machine's own programs: no registry is needed."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

TOOLS = ("bash", "sh", "sleep", "cat", "id", "env", "ls", "head", "sync", "date", "yes", "dd", "true", "hostname")
UNUSED = ("site-packages", "test", "tests", "idlelib", "turtledemo", "ensurepip", "__pycache__", "lib2to3")
CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""


def libraries(program: Path) -> Iterator[Path]:
    ran = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    yield from (Path(found) for found in re.findall(r"(/\S+) \(0x", ran.stdout))


def files_of_tools() -> Iterator[Path]:
    for name in TOOLS:
        path = Path(shutil.which(name) or name)
        yield path
        yield from libraries(path.resolve())


def files_of_python() -> Iterator[Path]:
    """The interpreter and its standard library, at the paths that they have here."""
    base = Path(sys.base_prefix)
    program = base / "bin" / f"python3.{sys.version_info.minor}"
    yield program
    yield from libraries(program)
    for folder, inner, names in os.walk(base / "lib" / program.name):
        inner[:] = [name for name in inner if name not in UNUSED and not name.startswith("config-")]
        for path in (Path(folder, name) for name in names):
            yield path
            if path.suffix == ".so":
                yield from libraries(path)


def files_of_package(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".a", ".h", ".pyc", ".pyi") and "test" not in path.parts:
            yield path


def write_tar(target: Path, files: Iterable[Path]) -> Path:
    """Files at the paths that they have here; `/usr/bin` and the like also as `/bin`."""
    with tarfile.open(target, "w") as tar:
        for link in ("bin", "lib", "lib64", "sbin"):
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, f"usr/{link}"
            tar.addfile(info)
        for folder in ("tmp", "etc", "proc", "sys", "dev"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(info)
        for path in sorted({Path(os.path.realpath(each.parent)) / each.name for each in files}):
            tar.add(path.resolve(), str(path).lstrip("/"), recursive=False)
        info = tarfile.TarInfo("usr/bin/python3")
        info.type, info.linkname = tarfile.SYMTYPE, os.path.realpath(sys.executable)
        tar.addfile(info)
    return target


def podman_conf(folder: Path) -> Path:
    """As podman must be configured on the machines of the tests: few rights, control groups of both versions."""
    runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "")
    conf = folder / "containers.conf"
    conf.write_text(CONF + (f'runtime = "{runtime}"\n' if runtime else ""))
    return conf


@functools.cache
def why_no_podman() -> str:
    if not shutil.which("podman"):
        return "podman is not installed: `apt-get install podman runc` gets it"
    if os.geteuid() != 0:
        return "these tests build and run images as root"
    return ""


def python_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an image with a shell and this machine's Python, made once per machine and version."""
    if reason := why_no_podman():
        pytest.skip(reason)
    monkeypatch.setenv("CONTAINERS_CONF", str(podman_conf(folder)))
    name = f"localhost/skep-test:{hashlib.sha256((sys.version + Path(__file__).read_text()).encode()).hexdigest()[:12]}"
    if subprocess.run(["podman", "image", "exists", name], check=False).returncode:
        tar = write_tar(folder / "image.tar", [*files_of_tools(), *files_of_python()])
        subprocess.run(["podman", "import", "--quiet", str(tar), name], check=True, capture_output=True)
        tar.unlink()
    ran = subprocess.run(["podman", "run", "--rm", "--network=host", name, "true"], capture_output=True, check=False)
    if ran.returncode:
        pytest.skip(f"podman cannot run a container here: {ran.stderr.decode()[-200:]}")
    return name
