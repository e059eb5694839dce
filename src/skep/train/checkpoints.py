"""A folder of checkpoints: each is complete and durable before it can be found, and a damaged one is never loaded.

    checkpoint-000007/   manifest.json  shared.bin  rank-0.bin  rank-1.bin  (user/: what the script's own `save` wrote)
    tmp-0-240/           being written for step 240; after a crash it is left over and removed at the next start

They are numbered, not named by step: one step may be saved twice (before and after the end of its epoch). Numbers of a
later launch are larger: on a node that cannot be reached an older launch may go on for a while, and what it saves then
never counts as newer than, nor replaces, what a newer launch has saved.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path

from skep.train import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

KEEP = 2  # the latest, and the one before in case the disk damaged the latest
MANIFEST = "manifest.json"
CHUNK = 1 << 20
OF_LAUNCH = 1_000_000  # numbers of each launch


def warn(message: str) -> None:
    print(f"skep.train: {message}", file=sys.stderr, flush=True)


def rank_file(rank: int) -> str:
    return f"rank-{rank}.bin"


class Checkpoints:
    def __init__(self, folder: Path, launch: int | None = None) -> None:
        """Without a number, the launch is that of the newest checkpoint."""
        self._folder = folder
        self._launch = max(map(_number, self._all()), default=0) // OF_LAUNCH if launch is None else launch

    def latest(self) -> dict[str, Any] | None:
        """The manifest of the newest intact checkpoint. Damaged ones are set aside; leftovers of a crash are
        removed."""
        for leftover in self._folder.glob("tmp-*"):
            if _launch_of(leftover) <= self._launch:
                _remove(leftover)
        for path in reversed(self._all()):
            try:
                return _check(path)
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                warn(f"{path.name} is damaged ({error}); using the one before")
                self._set_aside(path)
        return None

    def manifest(self, number: int) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self._place(number) / MANIFEST).read_bytes())
        return manifest

    def read(self, number: int, name: str) -> Any:
        """None if the checkpoint has no such file (a rank that did not exist then)."""
        path = self._place(number) / name
        if not path.exists():
            return None
        with path.open("rb") as file:
            return state.load(file)

    def user_folder(self, number: int) -> Path:
        return self._place(number) / "user"

    def start(self, step: int) -> Path:
        """The temporary folder for this step. Every rank may call it."""
        folder = self._temporary(step)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write(self, step: int, name: str, value: Any) -> None:
        with (self._temporary(step) / name).open("wb") as file:
            state.dump(value, file)
            file.flush()
            os.fsync(file.fileno())

    def commit(self, step: int, manifest: dict[str, Any], expected: list[str]) -> None:
        """For rank 0, after every rank has written: from here on the checkpoint exists, whatever happens."""
        folder = self._temporary(step)
        missing = [name for name in expected if not (folder / name).exists()]
        if missing:
            raise OSError(f"{missing[0]} is missing: the checkpoint folder is not shared by all ranks")
        first = self._launch * OF_LAUNCH
        number = max([first, *(each for each in map(_number, self._all()) if each < first + OF_LAUNCH)]) + 1
        sums = {name: _summed(folder / name) for name in _files(folder)}
        content = {**manifest, "number": number, "step": step, "files": sums}
        (folder / MANIFEST).write_text(json.dumps({**content, "sum": _sum_of(content)}), "utf-8")
        for path in [*folder.rglob("*"), folder]:
            _sync(path)
        folder.rename(self._place(number))
        _sync(self._folder)
        for path in self._all()[:-KEEP]:
            _remove(path)

    def discard(self, step: int) -> None:
        _remove(self._temporary(step))

    def _all(self) -> list[Path]:
        """Oldest first."""
        found = [path for path in self._folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
        return sorted(found, key=_number)

    def _set_aside(self, path: Path) -> None:
        """Kept for inspection, but renamed: it must not count as one of the checkpoints that are kept."""
        aside = path.with_name(f"damaged-{path.name}")
        _remove(aside)
        try:
            path.rename(aside)
        except OSError as error:  # the folder is read-only: training continues, as without space to save
            warn(f"{path.name} stays where it is: {error.strerror}")

    def _place(self, number: int) -> Path:
        return self._folder / f"checkpoint-{number:06d}"

    def _temporary(self, step: int) -> Path:
        return self._folder / f"tmp-{self._launch}-{step}"


def _number(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))


def _launch_of(temporary: Path) -> int:
    """0 if the folder is none of ours."""
    words = temporary.name.split("-")
    return int(words[1]) if len(words) == 3 and words[1].isdigit() else 0


def _check(path: Path) -> dict[str, Any]:
    """The manifest, if everything is as it was written."""
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
    if manifest.pop("sum") != _sum_of(manifest):
        raise ValueError(f"{MANIFEST} differs from what was written")
    for name, summed in manifest["files"].items():
        if _summed(path / name) != summed:
            raise ValueError(f"{name} differs from what was written")
    return manifest


def _sum_of(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def _remove(folder: Path) -> None:
    import shutil  # slow to import, and a job that is new and short never needs it

    shutil.rmtree(folder, ignore_errors=True)


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            yield path.relative_to(folder).as_posix()


def _summed(path: Path) -> list[int]:
    """Size and checksum of a file."""
    checksum = size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
            size += len(chunk)
    return [size, checksum]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
