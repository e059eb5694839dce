"""`skep backup`: a copy of the store, while the server runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

from skep.cli.live import connect, server_option


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@server_option
def backup(file: str | None, force: bool, url: str) -> None:
    """Copy the store of a running server to FILE, one SQLite file.

    It holds the log of everything that happened; logs and checkpoints of jobs are not in it.

    \b
    Examples:
      skep backup
      skep backup /backups/skep-monday.db
    """
    from skep.core.errors import InputError

    target = Path(file or time.strftime("skep-%Y%m%d-%H%M%S.db"))
    if target.exists() and not force:
        raise InputError(f"{target} already exists", hint="--force replaces it")
    with connect(url) as client:
        size = write_whole(client.backup(), target)
    print(f"{target}: {size:,} bytes", file=sys.stderr)


def write_whole(pieces: Iterable[bytes], target: Path) -> int:
    """Written beside the target and renamed, so that there is never a partial backup."""
    from skep.client import LostAnswer
    from skep.core.errors import InputError

    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as out:
            aside.chmod(0o600)  # it contains commands and environments of jobs
            out.writelines(pieces)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        aside.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
    except LostAnswer:
        raise InputError(f"{target} was not written: the server went away", hint="try again") from None
    finally:
        aside.unlink(missing_ok=True)
    return size
