"""How many instructions does a simulation take, against an earlier commit? They do not depend on what else runs.

    python -m bench.instructions COMMIT    minutes; needs valgrind

Both commits run the same commands on the same congested trace: 900 synthetic jobs at a load of 1.6 on `12x8`. Those of
a trace with one job, which is start-up, are taken off. Exit code 1 if a policy takes more than 3 % more than at the
commit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.words import print_columns

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ("fifo", "srsf", "las", "e-las")
MORE_MAX = 0.03
SYNTH = ("--jobs", "900", "--load", "1.6", "--gpus", "96", "--seed", "1")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m bench.instructions COMMIT", file=sys.stderr)
        return 2
    table, is_more = [["policy", "then", "now", "more"]], False
    with tempfile.TemporaryDirectory(prefix="skep-instructions-") as name:
        folder = Path(name)
        sources = (unpacked(sys.argv[1], folder / "then"), ROOT / "src")
        trace, start = make_traces(folder)
        for policy in POLICIES:
            then, now = (taken(src, policy, trace) - taken(src, policy, start) for src in sources)
            table.append([policy, f"{then / 1e6:.1f} M", f"{now / 1e6:.1f} M", f"{now / then - 1:+.1%}"])
            is_more |= now > then * (1 + MORE_MAX)
    print_columns(table)
    return int(is_more)


def unpacked(commit: str, folder: Path) -> Path:
    """The sources of a commit."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder / "src"


def make_traces(folder: Path) -> tuple[Path, Path]:
    """The trace, and one of its first job alone."""
    trace, start = folder / "jobs.csv", folder / "one.csv"
    command = [sys.executable, "-m", "skep.cli.main", "trace", "synth", *SYNTH, "--out", str(trace)]
    subprocess.run(command, check=True, capture_output=True, env=environment(ROOT / "src"))
    start.write_text("".join(trace.read_text().splitlines(keepends=True)[:2]))
    return trace, start


def taken(src: Path, policy: str, trace: Path) -> int:
    """Instructions of the whole command, after a run that compiles the modules."""
    simulate = ["simulate", str(trace), "--cluster", "12x8", "--policy", policy, "--json"]
    command = [sys.executable, "-m", "skep.cli.main", *simulate]
    subprocess.run(command, check=True, capture_output=True, env=environment(src))
    counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    said = subprocess.run(counted, check=True, capture_output=True, text=True, env=environment(src)).stderr
    found = re.search(r"Collected : (\d+)", said)
    assert found is not None, said
    return int(found[1])


def environment(src: Path) -> dict[str, str]:
    """Compiled modules are kept beside these sources, and dicts have one order."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(src), "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    sys.exit(main())
