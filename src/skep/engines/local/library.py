"""`skep.train` for jobs whose Python has no Skep: a folder with this module alone, which is put on PYTHONPATH."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib import resources
from importlib.metadata import version
from pathlib import Path

INIT = '''"""The part of Skep that jobs need, `skep.train`. Where Skep is installed, the rest of it is found too."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = {version!r}


def __getattr__(name):
    if name == "Client":
        from skep.client import Client

        return Client
    raise AttributeError(f"module 'skep' has no attribute {{name!r}}")
'''


def prepare_library(folder: Path) -> Path:
    """The path for PYTHONPATH, below `folder`. Each version has its own path: running jobs keep theirs."""
    files = {"skep/__init__.py": INIT.format(version=version("skep"))}
    for source in resources.files("skep.train").iterdir():
        if source.name.endswith(".py"):
            files[f"skep/train/{source.name}"] = source.read_text("utf-8")
    digest = hashlib.sha256("\0".join(f"{name}\0{files[name]}" for name in sorted(files)).encode()).hexdigest()[:12]
    target = folder / digest
    if not target.is_dir():
        _write(folder, target, files)
    folder.chmod(0o755)  # Under the server's umask it is made for the server alone, and jobs of all accounts read it.
    return target


def _write(folder: Path, target: Path, files: dict[str, str]) -> None:
    """Written aside and renamed, so that a crash leaves no partial copy."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    try:
        for name, text in files.items():
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        for made in (aside, aside / "skep", aside / "skep" / "train"):
            made.chmod(0o755)
        os.rename(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def with_library(env: dict[str, str], library: Path) -> dict[str, str]:
    before = env.get("PYTHONPATH", "")
    return env | {"PYTHONPATH": f"{library}{os.pathsep}{before}" if before else str(library)}
