"""Would the tests notice? Draws small changes of the code that holds the state, and runs the tests against each.

    python -m tests.mutants                            200 of them; exit code 1 if fewer than 95 % are killed
    python -m tests.mutants --count 50 --seed 7        others
    python -m tests.mutants --only cells --all         every one of a part: a long run
    python -m tests.mutants --only ledger tests/unit/core/test_ledger.py    by these tests alone

A mutant that survives is shown with its file, line and change: a test is missing, or the line does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.runner import ROOT, Map, Session, Verdict

CORE = "src/skep/core"
PARTS = {
    "state": (f"{CORE}/state.py", f"{CORE}/fold"),
    "step": (f"{CORE}/step.py",),
    "plan": (f"{CORE}/plan.py", f"{CORE}/commit.py"),
    "ledger": (f"{CORE}/ledger.py", f"{CORE}/allocation.py", f"{CORE}/pool.py", f"{CORE}/cluster.py"),
    "cells": (f"{CORE}/cells",),
}
TESTS = (
    "tests/unit/core",
    "tests/unit/policies",
    "tests/unit/scenarios",
    "tests/unit/engines/test_sim_engine.py",
    "tests/unit/engines/test_sim_adopt.py",
    "tests/golden",
    "tests/properties",
)
TRACE_MAX_S = 3.0
"""CPU time of a test under `coverage`; those that take longer are left out."""


def main() -> int:
    options = parse()
    parts = [options.only] if options.only else list(PARTS)
    files = sorted(file for part in parts for path in PARTS[part] for file in python_files(ROOT / path))
    everything = sorted(each for file in files for each in mutants(file, str(file.relative_to(ROOT))))
    chosen = everything
    if not options.all:
        chosen = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    print(f"{len(chosen)} of {len(everything)} mutants, seed {options.seed}", flush=True)
    verdicts: list[Verdict] = []
    session = Session(lambda session: verdicts.extend(judge_all(session, sorted(chosen), options)))
    quiet = ["-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-o", "timeout=0"]
    os.environ["SKEP_EXAMPLES"] = "0.2"
    pytest.main([*quiet, "--hypothesis-profile=few", "-m", "not slow", *(options.tests or TESTS)], plugins=[session])
    if len(verdicts) < len(chosen):
        print(f"only {len(verdicts)} of {len(chosen)} mutants were judged")
        return 2
    killed = sum(verdict.killed_by != "" for verdict in verdicts)
    print(f"\n{killed} of {len(chosen)} killed: {killed / len(chosen):.1%}; at least {options.least:.0%} is wanted")
    return 0 if killed >= options.least * len(chosen) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tests", nargs="*", metavar="TESTS", help="files or folders of tests (the quick ones)")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="how many to draw")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones")
    parser.add_argument("--only", choices=list(PARTS), help="draw from one part")
    parser.add_argument("--all", action="store_true", help="do not draw: all of them")
    parser.add_argument("--least", type=float, default=0.95, metavar="SHARE", help="of them to be killed (0.95)")
    parser.add_argument("--cpu-s", type=float, default=40.0, metavar="S", help="of tests for each mutant (40)")
    parser.add_argument("--verbose", action="store_true", help="also what killed each of the others")
    return parser.parse_args()


def python_files(path: Path) -> Iterator[Path]:
    yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def judge_all(session: Session, chosen: list[Mutant], options: argparse.Namespace) -> Iterator[Verdict]:
    """Each verdict; those that survive are printed."""
    lines = line_map(session)
    for at, mutant in enumerate(chosen, start=1):
        verdict = session.judge(mutant, lines, options.cpu_s)
        if not verdict.killed_by:
            print(f"survived {verdict.test_count} tests: {mutant}", flush=True)
        elif options.verbose:
            print(f"killed: {mutant}  by {verdict.killed_by}", flush=True)
        if at % 20 == 0:
            print(f"... {at} of {len(chosen)}", flush=True)
        yield verdict


def line_map(session: Session) -> Map:
    """Which tests run which lines of all parts. What the tests of a file run is kept until they or the code change."""
    files = {
        str(file): str(file.relative_to(ROOT))
        for paths in PARTS.values()
        for path in paths
        for file in python_files(ROOT / path)
    }
    folder = Path(tempfile.gettempdir()) / "skep-mutants"
    folder.mkdir(exist_ok=True)
    found, shared = Map(), fingerprint(every_file())
    for module, names in by_module(session.items).items():
        kept = folder / f"{fingerprint([ROOT / module], shared + ' '.join(names))}.pickle"
        if not kept.exists():
            print(f"looking which lines {module} runs", flush=True)
            traced = {name: session.trace(name, files, TRACE_MAX_S) for name in names}
            kept.write_bytes(pickle.dumps(traced))
        for name, trace in pickle.loads(kept.read_bytes()).items():
            found.add(name, trace)
    if found.left_out:
        print(f"left out ({len(found.left_out)} fail or take more than {TRACE_MAX_S:g} s): {', '.join(found.left_out)}")
    return found


def by_module(names: Iterable[str]) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = {}
    for name in names:
        modules.setdefault(name.partition("::")[0], []).append(name)
    return modules


def every_file() -> list[Path]:
    """All code, and what tests share."""
    tests = (path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_"))
    return sorted([*(ROOT / "src/skep").rglob("*.py"), *tests])


def fingerprint(files: list[Path], also: str = sys.version) -> str:
    digest = hashlib.sha256(also.encode())
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
