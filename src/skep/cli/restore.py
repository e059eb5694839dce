"""`skep restore`: puts a backup in the place of the store, while no server runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--data", metavar="DIR", help="The data of the server.  [default: ~/.local/share/skep]")
def restore(file: str, data: str | None) -> None:
    """Put FILE, made by `skep backup`, in the place of the store. The store that is there is kept beside it.

    What happened since the backup is then not known any more: the next `skep up` ends jobs that were submitted since,
    and starts jobs again that were open then, unless their files show that they have ended.

    \b
    Examples:
      skep down
      skep restore /backups/skep-monday.db
      skep up -d
    """
    from skep.files.running import default_data
    from skep.server.datadir import DataDir
    from skep.service.restore import put_back

    folder = Path(data).expanduser().absolute() if data else default_data()
    with DataDir(folder):  # refuses while a server runs, and prevents others from starting
        kept, open_jobs = put_back(Path(file), folder, time.strftime("%Y%m%d-%H%M%S"))
    print(f"restored {folder} from {file}; open jobs in it: {open_jobs:,}", file=sys.stderr)
    if kept is not None:
        print(f"the previous store is kept as {kept}", file=sys.stderr)
