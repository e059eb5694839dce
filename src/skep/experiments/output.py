"""DIR/<policy>/jobs.csv and summary.json, written aside and renamed when everything is complete."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.metrics.run import JobRow, Run

NAME_MAX = 200
"""The longest name of a folder: file systems allow 255 bytes, and a spec may contain a whole path."""

COLUMNS = JobRow.__struct_fields__


def folder_names(policies: list[str]) -> list[str]:
    """The specs with unsafe characters as `_`; `-2`, `-3`, … if two would be the same."""
    names: list[str] = []
    for policy in policies:
        safe = re.sub(r"[^A-Za-z0-9._=+-]", "_", policy)[:NAME_MAX]
        name, number = safe, 2
        while name in names or name in (".", ".."):
            name, number = f"{safe}-{number}", number + 1
        names.append(name)
    return names


def check_out(out: Path, *, force: bool | None) -> None:
    """Refuse before hours of work an output that cannot be written. `force` is None if nothing may be replaced."""
    is_empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not is_empty and not force:
        raise InputError(
            f"{out} exists already", hint="name another folder" if force is None else "--force replaces it"
        )
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder", hint="create it first")
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"{out} cannot be written: its folder is read-only", hint="--out DIR names another place")
    if force and out.exists() and not is_ours(out):
        raise InputError(
            f"{out} contains other files than results", hint="--force replaces only what a run has written"
        )


def is_ours(out: Path) -> bool:
    return out.is_dir() and all((entry / "summary.json").is_file() for entry in out.iterdir())


def write_runs(runs: Sequence[tuple[str, Run]], out: Path, *, force: bool) -> None:
    """Runs by their labels: that of a run is its policy, if there is one cluster and one seed."""
    write_folder(out, lambda aside: write_folders(runs, aside), force=force)


def write_folder(out: Path, fill: Callable[[Path], None], *, force: bool | None) -> None:
    """Written atomically: `fill` writes into a folder beside it."""
    check_out(out, force=force)
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            fill(aside)
            aside.chmod(0o755)
            if out.exists():
                shutil.rmtree(out)
            aside.rename(out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from None


def write_folders(runs: Sequence[tuple[str, Run]], aside: Path) -> None:
    for name, (_, run) in zip(folder_names([label for label, _ in runs]), runs, strict=True):
        folder = aside / name
        folder.mkdir()
        (folder / "jobs.csv").write_text(jobs_csv(run.rows), encoding="utf-8")
        (folder / "summary.json").write_text(json.dumps(summary_dict(run), indent=2) + "\n", encoding="utf-8")


def jobs_csv(rows: list[JobRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([cell(value) for value in msgspec.structs.astuple(row)])
    return text.getvalue()


def cell(value: object) -> object:
    """Whole seconds without a fraction, others to the microsecond."""
    if type(value) is float:
        value = round(value, 6)
        return int(value) if value.is_integer() else value
    return value


def summary_dict(run: Run) -> dict[str, object]:
    values = msgspec.structs.asdict(run.summary)
    return {key: round(value, 6) if type(value) is float else value for key, value in values.items()}
