"""How fast is `skep simulate`? CPU time of whole commands, start-up and trace reading included.

    python -m bench.simulate            everything, on the Philly trace where it is there (about 18 minutes)
    python -m bench.simulate --quick    made traces only, a minute

Seconds depend on the machine, so they are shown beside their limits and never fail a run. What can fail it (exit
code 1) does not: the time against a bare loop of the same run that pushes and pops as many events through a heap, and
how the time grows when a trace has twice the jobs. Commands and loops take turns; each figure is a median.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import heapq
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that it runs as a file and as a module

from words import as_dict, is_ok, is_within, machine, number, print_columns, yes_no

ROOT = Path(__file__).resolve().parent.parent
PHILLY = ROOT.parent / "shared" / "data" / "philly" / "philly.csv"
PHILLY_JOBS, PHILLY_LOAD = 82_247, 0.835
MEMORY_MAX_MIB = 1024
GROWTH_MAX, GROWTH_LOAD = 2.3, 0.8
ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A simulation, the seconds it may take, and how many times the bare loop."""

    policy: str
    limit_s: float | None
    ratio_max: float | None


# The gates are about one and a half times what was seen where they were set (docs/performance.md).
FULL = (
    Case("fifo:walk=skip,place=any", 4, 48),
    Case("srsf:place=any", 8, 60),
    Case("tiresias-l:place=any", 8, 65),
    Case("fifo:walk=skip,place=consolidate", 4, 48),
    Case("srsf:place=consolidate", 9, 90),
    Case("tiresias-l:place=consolidate", 9, 65),
)
# Once each: their limits are half of what they took on 16 November.
SLOW = (Case("las:place=any", 30, None), Case("e-las:place=any", 40, None))
SAMPLE = (Case("fifo", 0.8, 60), Case("srsf", 0.8, 60), Case("tiresias-l", 0.8, 60))
GROWING = (
    "fifo:walk=skip",
    "srsf",
    "tiresias-l",
    "sjf:walk=skip",
    "las",
    "tiresias-g",
    "e-las",
    "yarn-cs",
    "drf",
)


@dataclasses.dataclass(frozen=True)
class Used:
    """What a command cost."""

    cpu_s: float
    peak_mib: float
    out: str


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. `limit_s` is only compared; `ratio_max` is the gate."""

    what: str
    seen_s: float
    limit_s: float | None = None
    peak_mib: float | None = None
    ratio: float | None = None
    ratio_max: float | None = None
    against: str = ""

    @property
    def is_within(self) -> bool | None:
        return is_within(self.seen_s, self.limit_s)

    @property
    def is_ok(self) -> bool | None:
        return is_ok(self.ratio, self.ratio_max)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small made traces only; no limits in seconds apply")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each command (default %(default)s)")
    parser.add_argument("--render", nargs=2, metavar=("TRACE", "CLUSTER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.render:
        print(render_s(*given.render))
        return 0
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        rows = []
        for row in measure(Path(folder), is_quick=given.quick, rounds=max(given.rounds, 1)):
            say(f"{row.what}: {row.seen_s:.2f} s")
            rows.append(row)
    if given.json:
        print(json.dumps({"machine": machine(), "rows": [as_dict(row) for row in rows]}, indent=2))
    else:
        print_table(rows)
    return 1 if any(row.is_ok is False for row in rows) else 0


def measure(folder: Path, *, is_quick: bool, rounds: int) -> Iterator[Row]:
    trace, cluster = folder / "made.csv", "56x8"
    if is_quick:
        synth(trace, jobs=8000, load=PHILLY_LOAD)
    elif PHILLY.is_file():
        trace = PHILLY
    else:
        say(f"{PHILLY} is not there: a made trace of the same size and load takes its place")
        synth(trace, jobs=PHILLY_JOBS, load=PHILLY_LOAD)
    # The gates were set on Philly and its sample; made traces wait more and start up as long, so only growth counts.
    loose = {"limit_s": None, "ratio_max": None} if is_quick else {}
    for case in FULL:
        yield simulated(dataclasses.replace(case, **loose), trace, cluster, rounds)
    for case in () if is_quick else SLOW:
        yield simulated(case, trace, cluster, 1)
    small = folder / "small.csv"
    skep("trace", "sample", str(trace), "--jobs", "5000", "--seed", "1", "--out", str(small))
    for case in SAMPLE:
        yield simulated(dataclasses.replace(case, **loose), small, "32x4", rounds)
    for policy in GROWING[:3] if is_quick else GROWING:
        yield grown(folder, policy, 5000 if is_quick else 10_000, rounds, is_steady=True)
    for policy in () if is_quick else GROWING:
        yield grown(folder, policy, 10_000, rounds, is_steady=False)
    yield started(rounds * 3)
    yield was_read(trace, rounds)
    yield rendered(small, "32x4", rounds)


# The lines ------------------------------------------------------------------------------------------------------


def simulated(case: Case, trace: Path, cluster: str, rounds: int) -> Row:
    runs, loops = [], []
    events = 0
    for _ in range(rounds):
        used = skep("simulate", str(trace), "--cluster", cluster, "--policy", case.policy, "--json")
        events = summary(used)["events"]
        runs.append(used)
        loops.append(heap_loop_s(events))
    seen_s = statistics.median(run.cpu_s for run in runs)
    return Row(
        what=f"{case.policy} · {trace.stem} on {cluster}",
        seen_s=seen_s,
        limit_s=case.limit_s,
        peak_mib=max(run.peak_mib for run in runs),
        ratio=seen_s / statistics.median(loops),
        ratio_max=case.ratio_max,
        against=f"heap of {events:,} events",
    )


def grown(folder: Path, policy: str, count: int, rounds: int, *, is_steady: bool) -> Row:
    """Twice the jobs at the same load on the same cluster, over twice the time; each round has another seed.

    `steady`: no job longer than six hours, and twice the jobs are the same jobs once more. `made`: jobs of `skep trace
    synth` as they are, up to months long, which take weeks to fill the cluster; so they come once to warm it up, off
    the clock, and then once more or twice more. A longer trace alone would not do: the cluster is fuller in it.
    """
    name, longest_s, warm_up = ("steady", 6 * 3600.0, 0) if is_steady else ("made", math.inf, 1)
    costs, events = [], []
    for seed in range(rounds):
        made = folder / f"growth-{count}-{seed}.csv"
        if not made.exists():
            synth(made, jobs=count, load=GROWTH_LOAD, seed=seed)
        runs = []
        for times in range(1, warm_up + 3):
            trace = made.with_suffix(f".{name}-{times}.csv")
            if not trace.exists():
                repeat(made, trace, times=times, longest_s=longest_s)
            runs.append(skep("simulate", str(trace), "--cluster", "56x8", "--policy", policy, "--json"))
        costs.append([run.cpu_s for run in runs])
        events.append([summary(run)["events"] for run in runs])
    more_events = statistics.median(growth(counts, warm_up) for counts in events)
    return Row(
        what=f"{policy} · {2 * count:,} {name} jobs",
        seen_s=statistics.median(growing[-1] for growing in costs),
        ratio=statistics.median(growth(growing, warm_up) for growing in costs),
        ratio_max=GROWTH_MAX,
        against=f"half the jobs ({more_events:.2f} times the events)",
    )


def growth(costs: list[float], warm_up: int) -> float:
    """Twice against once, from what the trace cost once, twice and so on; the first are the warm-up."""
    before = costs[warm_up - 1] if warm_up else 0.0
    return (costs[warm_up + 1] - before) / (costs[warm_up] - before)


def repeat(trace: Path, to: Path, *, times: int, longest_s: float) -> None:
    """The trace so many times one after the other, with longer jobs cut and arrivals closer together for the load."""
    with trace.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        row["duration_s"] = str(min(float(row["duration_s"]), longest_s))
    asked = sum(float(row["duration_s"]) * int(row["gpus"]) for row in rows)
    span_s = asked / (448 * GROWTH_LOAD)
    factor = span_s / float(rows[-1]["submit_s"])
    with to.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for number in range(times):
            for row in rows:
                submit_s = round(float(row["submit_s"]) * factor + number * span_s, 3)
                writer.writerow({**row, "job_id": f"{row['job_id']}-{number}", "submit_s": submit_s})


def started(rounds: int) -> Row:
    seen, bare = [], []
    for _ in range(rounds):
        seen.append(skep("--help").cpu_s)
        bare.append(spend([sys.executable, "-c", "pass"]).cpu_s)
    seen_s = statistics.median(seen)
    ratio = seen_s / max(statistics.median(bare), 1e-3)
    return Row("skep --help", seen_s, limit_s=0.15, ratio=ratio, ratio_max=8, against="python -c pass")


def was_read(trace: Path, rounds: int) -> Row:
    code = "import sys; from skep.traces.read import read_trace; read_trace(sys.argv[1])"
    bare_code = "import csv, sys; list(csv.reader(open(sys.argv[1], newline='')))"
    seen, bare = [], []
    for _ in range(rounds):
        seen.append(spend([sys.executable, "-c", code, str(trace)]))
        bare.append(spend([sys.executable, "-c", bare_code, str(trace)]).cpu_s)
    seen_s = statistics.median(used.cpu_s for used in seen)
    return Row(
        what=f"reading {trace.name}, whole process",
        seen_s=seen_s,
        peak_mib=max(used.peak_mib for used in seen),
        ratio=seen_s / statistics.median(bare),
        ratio_max=15,
        against="csv.reader, whole process",
    )


def rendered(trace: Path, cluster: str, rounds: int) -> Row:
    command = [sys.executable, str(Path(__file__).resolve()), "--render", str(trace), cluster]
    seen_s = statistics.median(float(spend(command).out) for _ in range(rounds))
    return Row(f"rendering the report, 3 policies, {trace.stem}", seen_s)


def render_s(trace: str, cluster: str) -> float:
    """In a process of its own: only the rendering counts, the runs before it do not."""
    from skep.clusters.read import read_cluster
    from skep.experiments.simulate import Experiment, Options
    from skep.report.html import render_report
    from skep.traces.read import read_trace

    experiment = Experiment(read_trace(trace), read_cluster(cluster), Options(keep_history=True))
    runs = [experiment.run(case.policy) for case in SAMPLE]
    started_s = time.process_time()
    render_report(runs, title="bench")
    return time.process_time() - started_s


def heap_loop_s(events: int) -> float:
    """CPU seconds of a loop that pushes and pops so many tuples, a thousand of them in the heap at any time."""
    value = 12345
    heap: list[tuple[float, int, int, None]] = []
    started_s = time.process_time()
    for at in range(1000):
        heapq.heappush(heap, (float(at), 0, at, None))
    for at in range(1000, 1000 + events):
        at_s, _, _, _ = heapq.heappop(heap)
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        heapq.heappush(heap, (at_s + value % 10_000, 0, at, None))
    return time.process_time() - started_s


# Commands -------------------------------------------------------------------------------------------------------


def skep(*arguments: str) -> Used:
    script = shutil.which("skep", path=str(Path(sys.executable).parent))
    return spend([script or "skep", *arguments] if script else [sys.executable, "-m", "skep.cli.main", *arguments])


def synth(trace: Path, *, jobs: int, load: float, seed: int = 0) -> None:
    size = ("--jobs", str(jobs), "--load", str(load), "--gpus", "448", "--seed", str(seed))
    skep("trace", "synth", *size, "--out", str(trace))


def summary(used: Used) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(used.out)[0]
    return found


def spend(command: list[str]) -> Used:
    """Run it to its end; CPU time and peak memory are those the system counted for this one process."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.read()}")
        out.seek(0)
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit, out.read())


# Words ----------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, file=sys.stderr)


def print_table(rows: list[Row]) -> None:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("what", lambda row: row.what),
        ("limit s", lambda row: number(row.limit_s)),
        ("seen s", lambda row: number(row.seen_s)),
        ("within", lambda row: yes_no(row.is_within)),
        ("MiB", lambda row: number(row.peak_mib, 0)),
        ("ratio", lambda row: number(row.ratio, 1)),
        ("gate", lambda row: number(row.ratio_max, 1)),
        ("ok", lambda row: yes_no(row.is_ok)),
        ("ratio to", lambda row: row.against),
    ]
    table = [[name for name, _ in columns], *([show(row) for _, show in columns] for row in rows)]
    print_columns(table)
    over = [row.what for row in rows if row.peak_mib is not None and row.peak_mib > MEMORY_MAX_MIB]
    print(f"\npeak memory limit {MEMORY_MAX_MIB} MiB: {'over: ' + ', '.join(over) if over else 'kept'}")


if __name__ == "__main__":
    sys.exit(main())
