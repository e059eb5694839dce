"""See `bench.crash`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import bench.crash
from bench.crash.all import FAULTS
from bench.crash.trial import run_trial


def main() -> None:
    parser = argparse.ArgumentParser(description=bench.crash.__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(FAULTS), help="of the faults, between commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        seen = run_trial(Path(name), options.faults, options.seed, options.kinds.split(","), say=True)
    print(
        f"\n{seen.faults.total()} faults: {', '.join(f'{count} {kind}' for kind, count in sorted(seen.faults.items()))}"
    )
    print(f"{seen.jobs} jobs with {seen.launches} starts: none lost, stuck, left over or with another exit code")
    print(f"slowest restart: {seen.slowest_restart_s:.2f} s until it answered")


if __name__ == "__main__":
    main()
