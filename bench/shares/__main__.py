"""See `bench.shares`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import bench.shares
from bench.load import print_figures
from bench.shares import trials
from bench.words import machine

TRIALS = ("slices", "tokens", "lend", "crashes")


def main() -> None:
    parser = argparse.ArgumentParser(description=bench.shares.__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"of {', '.join(TRIALS)}; all without any")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of each measurement; phases of `lend` take a sixth"
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="that jobs are pinned to")
    options = parser.parse_args()
    for unknown in set(options.trials) - set(TRIALS):
        parser.error(f"there is no trial {unknown!r}")
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    is_kept = True
    for name in options.trials or TRIALS:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            if name == "crashes":
                figures = trials.crashes(place, options.core, options.kills)
            elif name == "lend":
                figures = trials.lend(place, options.core, options.seconds / 6)
            else:
                figures = {"slices": trials.slices, "tokens": trials.tokens}[name](place, options.core, options.seconds)
        is_kept = print_figures(figures) and is_kept
        sys.stdout.flush()
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
