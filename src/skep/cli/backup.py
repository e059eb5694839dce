"""`skep backup`: a copy of the store, while the server runs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from http.client import HTTPException
from pathlib import Path
from typing import IO

import click


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--url", metavar="URL", help="Address of the server.  [default: SKEP_URL or http://127.0.0.1:7437]")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def backup(file: str | None, url: str | None, force: bool) -> None:
    """Copy the store of a running server to FILE, one SQLite file.

    It holds the log of everything that happened; logs and checkpoints of jobs are not in it.

    \b
    Examples:
      skep backup
      skep backup /backups/skep-monday.db
    """
    from skep.cli.ask import call
    from skep.core.errors import InputError
    from skep.server.config import PORT

    target = Path(file or time.strftime("skep-%Y%m%d-%H%M%S.db"))
    if target.exists() and not force:
        raise InputError(f"{target} is there already", hint="--force replaces it")
    address = url or os.environ.get("SKEP_URL", "") or f"http://127.0.0.1:{PORT}"
    with call(address, "/backup", {}, timeout_s=600.0) as answer:
        size = write_whole(answer, target)
    print(f"{target}: {size:,} bytes", file=sys.stderr)


def write_whole(source: IO[bytes], target: Path) -> int:
    """Beside the target, then renamed: half a backup is none."""
    from skep.core.errors import InputError

    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as out:
            aside.chmod(0o600)  # commands and environments of jobs are in it
            shutil.copyfileobj(source, out)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        aside.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
    except HTTPException:
        raise InputError(f"{target} was not written: the server went away", hint="try again") from None
    finally:
        aside.unlink(missing_ok=True)
    return size
