"""What is measured, each trial on a server of its own."""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

from bench.load import Figure, wait_until
from bench.shares.world import World, used_over, world

from skep.engines.local.processes import TICK_S, send

SAMPLE_S = 0.005
SLICE = {"mode": "slice"}
GUARANTEED, OPPORTUNISTIC = {"mode": "lend"}, {"mode": "lend", "claim": "opportunistic"}
KUBESHARE = ((0.3, 0.6), (0.4, 0.6), (0.3, 0.5))
"""The three jobs of the KubeShare example: request and limit."""
SETTLE_S = 3.0

STEPS = """
import os, time
from pathlib import Path
from skep import train
job = train.join(every_s=None)
folder = Path(os.environ["SKEP_CHECKPOINT_DIR"])
with open(folder / "steps", "a", buffering=1) as out:
    for step in job.steps(10**9):
        while (folder / "sleep").exists():
            time.sleep(0.05)
        began_s = time.monotonic()
        count = 0
        while count < {work}:
            count += 1
        time.sleep({wait_s})
        out.write(f"{{began_s}} {{time.monotonic() - began_s}}\\n")
"""
WORK, WAIT_S = 100_000, 0.004
"""A step: some milliseconds of computing, and a wait as for data."""

UNTIL = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    end_s = time.monotonic() + 0.02
    while time.monotonic() < end_s:
        pass
"""


def slices(folder: Path, core: int, seconds: float) -> list[Figure]:
    """Two spinning jobs in mode `slice`."""
    with world(folder, core) as there:
        first = there.submit(SLICE)
        before = used_over(there, [first], seconds / 6)[0] / (seconds / 6)
        second = there.submit(SLICE)
        there.wait_for_turns(first, second)
        time.sleep(SETTLE_S)
        cpu_s, both, samples, wall_s = sampled(there, [first, second], seconds)
        there.stop(second)
        time.sleep(1.0)
        after = used_over(there, [first], seconds / 6)[0] / (seconds / 6)
    alone = (before + after) / 2
    share = 100 * cpu_s[0] / sum(cpu_s)
    return [
        Figure("slices: first job, of the CPU time of both", share, "%", 52.0),
        Figure("slices: second job, of the CPU time of both", 100 - share, "%", 52.0),
        Figure(f"slices: both runnable, of {samples} samples", 100 * both / samples, "%", 5.0),
        Figure("slices: CPU time of both, of one alone", sum(cpu_s) / wall_s / alone, "", 0.90, at_least=True),
    ]


def sampled(there: World, job_ids: list[str], seconds: float) -> tuple[list[float], int, int, float]:
    """CPU seconds of each, samples in which all could run, samples, seconds."""
    before = [there.cpu_s(job_id) for job_id in job_ids]
    began_s = time.monotonic()
    both = samples = 0
    while time.monotonic() - began_s < seconds:
        both += all(there.is_runnable(job_id) for job_id in job_ids)
        samples += 1
        time.sleep(SAMPLE_S)
    wall_s = time.monotonic() - began_s
    return [there.cpu_s(job_id) - was for job_id, was in zip(job_ids, before, strict=True)], both, samples, wall_s


def tokens(folder: Path, core: int, seconds: float) -> list[Figure]:
    """The three KubeShare jobs under `kubeshare`, each alone and then together. Alone, their turns are bounded."""
    figures = []
    asked = [{"mode": "token", "request": request, "limit": limit} for request, limit in KUBESHARE]
    with world(folder, core, "kubeshare") as there:
        for (request, limit), share in zip(KUBESHARE, asked, strict=True):
            job_id = there.submit(share)
            there.wait_for_turns(job_id)
            had = turn_share(there, job_id, seconds / 4)
            what = f"tokens: request {request} alone, {had:.3f} of the time, off its limit"
            figures.append(Figure(what, abs(had - limit), "", 0.03))
            there.stop(job_id)
        job_ids = [there.submit(share) for share in asked]
        there.wait_for_turns(*job_ids)
        time.sleep(SETTLE_S)
        used = used_over(there, job_ids, seconds)
    for (request, limit), cpu_s in zip(KUBESHARE, used, strict=True):
        share_seen = cpu_s / sum(used)
        what = f"tokens: limit {limit} with others, {share_seen:.3f}, off its request"
        figures.append(Figure(what, abs(share_seen - request), "", 0.03))
    return figures


def turn_share(there: World, job_id: str, seconds: float) -> float:
    time.sleep(2.0)
    before = there.measured()[job_id]
    time.sleep(seconds)
    after = there.measured()[job_id]
    return float((after["turn_s"] - before["turn_s"]) / (after["wall_s"] - before["wall_s"]))


def lend(folder: Path, core: int, seconds: float, phases: int = 5, steps: int = 200) -> list[Figure]:
    """A guaranteed job that trains, alone and beside a spinning opportunistic one in turn."""
    alone_s: list[float] = []
    shared_s: list[float] = []
    busy: list[float] = []
    script = folder / "steps.py"
    script.write_text(STEPS.format(work=WORK, wait_s=WAIT_S))
    with world(folder, core) as there:
        guaranteed = there.submit(GUARANTEED, f"exec {sys.executable} {script}")
        own = there.server.data / "jobs" / guaranteed / "checkpoint"
        wait_until(lambda: (own / "steps").exists())
        for _ in range(phases):
            alone_s += step_times(own, steps, seconds)
            neighbour = there.submit(OPPORTUNISTIC)
            there.wait_for_turns(guaranteed, neighbour)
            before_s, began_s = there.cpu_s(neighbour), time.monotonic()
            shared_s += step_times(own, steps, seconds)
            busy.append((there.cpu_s(neighbour) - before_s) / (time.monotonic() - began_s))
            there.stop(neighbour)
        neighbour = there.submit(OPPORTUNISTIC)
        there.wait_for_turns(neighbour)
        (own / "sleep").touch()
        time.sleep(SETTLE_S)
        unused_s = idle_s(core)
        had_s = used_over(there, [neighbour], seconds)[0]
        left = had_s / (had_s + idle_s(core) - unused_s)
    ratio = statistics.fmean(shared_s) / statistics.fmean(alone_s)
    return [
        Figure(f"lend: {len(alone_s)} steps alone, mean", 1000 * statistics.fmean(alone_s), "ms"),
        Figure(f"lend: {len(shared_s)} steps beside a neighbour, of those alone", ratio, "", 1.10),
        Figure(
            "lend: neighbour while the job is busy, of a CPU", 100 * statistics.fmean(busy), "%", 2.0, at_least=True
        ),
        Figure("lend: neighbour while the job sleeps, of a CPU", 100 * had_s / seconds, "%", 70.0, at_least=True),
        Figure("lend: the same, of what other processes leave", 100 * left, "%"),
    ]


def step_times(own: Path, steps: int, seconds: float) -> list[float]:
    """Of the steps from now on: for so many seconds, and at least so many steps."""
    began_s = time.monotonic()
    found: list[float] = []
    while len(found) < steps or time.monotonic() - began_s < seconds:
        time.sleep(0.1)
        lines = (own / "steps").read_text().splitlines()[:-1]
        found = [float(line.split()[1]) for line in lines if float(line.split()[0]) >= began_s]
    return found


def idle_s(core: int) -> float:
    """Seconds in which nobody has used this core."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} "))
    return sum(map(int, line.split()[4:6])) * TICK_S


def crashes(folder: Path, core: int, kills: int, seed: int = 0) -> list[Figure]:
    """The server is killed at random moments while jobs take turns, sometimes the turn keeper with it."""
    chance = random.Random(seed)
    done, script = folder / "done", folder / "until.py"
    script.write_text(UNTIL)
    command = f"exec {sys.executable} {script} {done}"
    stuck = lost = 0
    slowest_s = 0.0
    with world(folder, core) as there:
        job_ids = [there.submit(SLICE, command), there.submit(SLICE, command)]
        for number in range(kills):
            there.wait_for_turns(*job_ids)
            time.sleep(chance.uniform(0.0, 1.0))
            there.server.kill()
            if number % 3 == 0 and (keeper := there.keeper()):
                send(keeper, 9)
            took_s = seconds_until_all_run(there, job_ids)
            stuck += took_s is None
            slowest_s = max(slowest_s, took_s or 0.0)
            there.server.start()
            lost += sum(there.job(job_id)["state"] != "running" for job_id in job_ids)
        done.touch()
        for job_id in job_ids:
            wait_until(lambda job_id=job_id: there.job(job_id)["state"] not in ("running", "launching"))
        lost += sum(there.job(job_id)["state"] != "succeeded" or there.launches(job_id) != 1 for job_id in job_ids)
    return [
        Figure(f"crashes: of {kills} kills of the server, left a job stopped", stuck, "", 0.0),
        Figure("crashes: jobs lost, started anew or failed", lost, "", 0.0),
        Figure("crashes: slowest until every job had run again", slowest_s, "s"),
    ]


def seconds_until_all_run(there: World, job_ids: list[str], most_s: float = 20.0) -> float | None:
    """Without a server: until each has used CPU time; None if one does not."""
    began_s = time.monotonic()
    before = {job_id: there.cpu_s(job_id) for job_id in job_ids}
    while time.monotonic() - began_s < most_s:
        if all(there.cpu_s(job_id) > was + 0.02 for job_id, was in before.items()):
            return time.monotonic() - began_s
        time.sleep(0.05)
    return None
