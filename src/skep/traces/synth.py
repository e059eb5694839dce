"""Traces that look like Philly's, of any length and load; and small ones like those published with Gavel.

Production jobs do not come one by one. On Philly someone submits a *sweep*: a few to a few hundred jobs
within minutes, of one size and nearly one duration. So the generator draws sweeps, not jobs: a size, a
length, a duration around which its jobs scatter, a user, and an hour. Busy times persist: there are seasons
of several weeks, days that resemble the day before, weekends and nights. So a cluster that is large enough on
average is overloaded for weeks, which is what makes queues. The numbers were fitted to the public Philly
trace; docs/reference/traces.md compares both.

The requested load decides how long the trace is: the jobs are drawn first, then spread over as much time
as makes their GPU-seconds the wanted share of the cluster. Only `random()` is drawn on, which Python guarantees not
to change, and times are whole seconds, so that equal arguments give equal bytes on any machine.
"""

from __future__ import annotations

import random  # noqa: TID251 (this is the seeded source itself)
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from math import cos, exp, log, pi
from typing import NamedTuple, Protocol

from skep.core.errors import InputError
from skep.core.model import JobSpec
from skep.traces.table import shape_cache
from skep.traces.trace import Trace, TraceJob

GPUS = 448
VCS = 15

Draw = Callable[[], float]
"""The next number of the seeded source, from [0, 1)."""


class Size(NamedTuple):
    """The arrival pattern of jobs with this many GPUs."""

    gpus: int
    sweeps: float
    """Sweeps of this size, in proportion to the other sizes."""
    several: float
    """Share of the sweeps that have more than one job."""
    tail: float
    """How fast long sweeps become rare: P(at least n jobs) falls with n ** -tail."""
    durations_s: tuple[int, ...]
    """Durations of jobs, at the shares in `_SHARES`."""


_SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 1.0)
_ONE = (5, 30, 52, 62, 122, 1117, 2716, 8512, 19137, 55536, 135404, 266986, 868927, 3256045)
_TWO = (2, 5, 9, 11, 16, 21, 76, 73625, 197392, 290232, 526030, 810065, 1521148, 2582803)
_FOUR = (8, 35, 75, 138, 772, 17431, 89422, 184519, 274339, 505012, 908661, 1213031, 2641566, 2750674)
_EIGHT = (5, 33, 125, 216, 1871, 23683, 173288, 352409, 525631, 743644, 1066894, 2010727, 2658784, 4628226)
_SIXTEEN = (2, 4, 36, 51, 380, 52548, 167367, 341346, 511238, 657879, 1369876, 1710643, 1710643, 1710643)
_LARGE = (1, 2, 100, 345, 1100, 9000, 50000, 65000, 80000, 100000, 130000, 150000, 200000, 220000)
_SIZES = (
    Size(1, 24000, 0.22, 1.0, _ONE),
    Size(2, 1445, 0.14, 1.8, _TWO),
    Size(4, 1324, 0.17, 1.6, _FOUR),
    Size(8, 1301, 0.14, 1.8, _EIGHT),
    Size(12, 5, 0.1, 2.0, _LARGE),
    Size(16, 179, 0.08, 2.0, _SIXTEEN),
    Size(24, 5, 0.1, 2.0, _LARGE),
    Size(32, 44, 0.3, 2.0, _LARGE),
    Size(64, 5, 0.1, 2.0, _LARGE),
    Size(128, 3, 0.0, 2.0, _LARGE),
)
_SWEEP_MAX = 500
_SCATTER_MAX = 0.6
"""The largest scatter of the durations of a sweep (standard deviation of the logarithm); most sweeps have less."""
_GAP_MIN_S = 2.0
_GAP_MAX_S = 22.0
"""Mean time between two jobs of a sweep; most are scripts, and quick."""

_HOURS = (1.1, 1.0, 1.0, 1.0, 0.9, 1.1, 1.4, 1.5, 1.2, 1.1, 1.0, 0.9)
_HOURS_LATE = (0.8, 0.7, 0.7, 0.7, 0.8, 0.8, 0.8, 0.9, 1.0, 1.0, 1.1, 1.1)
_OF_DAY = _HOURS + _HOURS_LATE
_OF_WEEK = (0.9, 1.1, 1.15, 1.3, 1.4, 0.6, 0.6)
_SEASONS_D = ((105.0, 1.25), (37.0, 0.3))
"""Period in days and amplitude of the slow waves in the logarithm of the activity."""
_SEASON_CHANCE = 0.3
"""The part of a wave by which traces differ in where they begin; all begin near the low, as Philly's does."""
_PEAK_H, _PEAK = 8 * 7 * 24, 1.55
"""The busiest eight weeks of a trace of twelve or more weeks, relative to all of it."""
_HEIGHT_MAX = 3.0
_DAY_NOISE = 0.8
_DAY_PERSISTS = 0.85
_HOUR_NOISE = 0.3
_HOUR_PERSISTS = 0.5
"""Noise of a day and of an hour: standard deviation of the logarithm, correlation with the one before."""
_LARGE_SWINGS = 0.3
"""How much sweeps of several GPUs per job follow days and hours; they follow the seasons in full."""

_VC_SHARES = (
    (1.8, 25.9),
    (0.9, 16.7),
    (9.0, 11.3),
    (50.1, 0.9),
    (12.1, 6.2),
    (0.5, 8.2),
    (1.7, 7.6),
    (2.4, 4.0),
    (19.6, 0.1),
    (0.5, 1.3),
    (1.4, 0.6),
    (0.02, 0.02),
    (0.02, 0.02),
    (0.02, 0.02),
    (0.02, 0.02),
)
"""Philly's 15 VCs, largest first: weights of each in jobs with one GPU and in the GPU time of larger jobs."""

_MODELS = (
    ("resnet50", 30),
    ("inception3", 16),
    ("resnet101", 12),
    ("vgg16", 10),
    ("googlenet", 8),
    ("vgg19", 7),
    ("alexnet", 6),
    ("resnet152", 5),
    ("inception4", 4),
    ("vgg11", 2),
)
"""Tiresias' models: those of VGG and AlexNet have skewed tensors, the others have not."""


_GAVEL_SIZES = {1: 0.6, 2: 0.2, 4: 0.2}
_GAVEL_WORK_S = (300.0, 15_000.0)


class Models(Protocol):
    """A profile that knows its models."""

    def models(self) -> set[str]: ...
    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None: ...


class _Sweep(NamedTuple):
    """Jobs that one user submitted together."""

    size: Size
    gaps_s: list[float]
    vc: int
    user: str
    model: str


def synthesize(*, jobs: int, load: float, seed: int, gpus: int = GPUS, vcs: int = VCS) -> Trace:
    """A trace of `jobs` jobs that offers `load` (GPU-seconds per GPU and second) to a cluster of `gpus`."""
    _check(jobs=jobs, load=load, gpus=gpus, vcs=vcs)
    draw = random.Random(seed).random
    sweeps = _draw_sweeps(draw, jobs=jobs, gpus=gpus, vcs=vcs)
    durations_s = _draw_durations(draw, sweeps)
    work_gpu_s = sum(sweep.size.gpus * sum(durations_s[at]) for at, sweep in enumerate(sweeps))
    span_s = max(round(work_gpu_s / (gpus * load)), 1)
    rows = _draw_arrivals(draw, sweeps, durations_s, span_s)
    built = _build(rows, sweeps, durations_s, width=len(str(jobs)))
    return Trace(name=f"synth-{jobs}-{load:g}-{seed}", format="synth", jobs=built)


def synthesize_gavel(profile: Models, *, jobs: int, load: float, seed: int, gpus: int) -> Trace:
    """Jobs like those of the traces published with Gavel's simulator: models of its table of throughputs, one, two or
    four GPUs, up to about four hours of work, arrivals of a Poisson process. The load counts all GPUs as fast ones."""
    _check(jobs=jobs, load=load, gpus=gpus, vcs=1)
    draw = random.Random(seed).random
    kinds = [
        (model, size)
        for model in sorted(profile.models())
        for size in _GAVEL_SIZES
        if size <= gpus and profile.steps_per_s(model, size, "")
    ]
    if not kinds:
        raise InputError("the profile has no model with 1, 2 or 4 GPUs")
    weights = _cumulative([_GAVEL_SIZES[size] for _, size in kinds])
    drawn = [(*kinds[bisect_right(weights, draw())], _gavel_work(draw)) for _ in range(jobs)]
    gap_s = sum(size * work_s for _, size, work_s in drawn) / (gpus * load * jobs)
    shapes, submit_s, built = shape_cache(), 0.0, []
    for index, (model, size, work_s) in enumerate(drawn, 1):
        spec = JobSpec(f"job-{index:0{len(str(jobs))}d}", shapes(size), model=model, expect_s=work_s)
        built.append(TraceJob(float(int(submit_s)), work_s, spec))
        submit_s -= gap_s * log(1 - draw())
    return Trace(name=f"synth-gavel-{jobs}-{load:g}-{seed}", format="synth", jobs=built)


def _gavel_work(draw: Draw) -> float:
    return float(round(_GAVEL_WORK_S[0] + (_GAVEL_WORK_S[1] - _GAVEL_WORK_S[0]) * draw()))


def _check(*, jobs: int, load: float, gpus: int, vcs: int) -> None:
    for name, count in (("jobs", jobs), ("gpus", gpus), ("vcs", vcs)):
        if count < 1:
            raise InputError(f"{name} is {count}, expected a whole number >= 1")
    # A NaN fails every comparison.
    if not 1e-3 <= load < 1e6:
        raise InputError(f"load is {load:g}, expected a number of at least 0.001", hint="1 asks for the whole cluster")


def _draw_sweeps(draw: Draw, *, jobs: int, gpus: int, vcs: int) -> list[_Sweep]:
    """Sweeps with `jobs` jobs altogether; no job requests more GPUs than the cluster has."""
    sizes = [size for size in _SIZES if size.gpus <= gpus]
    size_shares = _cumulative([size.sweeps for size in sizes])
    model_shares = _cumulative([weight for _, weight in _MODELS])
    small = _vc_shares([small for small, _ in _VC_SHARES], vcs)
    large = _vc_shares([large for _, large in _VC_SHARES], vcs)
    sweeps: list[_Sweep] = []
    missing = jobs
    while missing:
        size = sizes[bisect_right(size_shares, draw())]
        length = min(_length(draw, size), missing)
        vc = bisect_right(small if size.gpus == 1 else large, draw())
        sweeps.append(
            _Sweep(
                size=size,
                gaps_s=_gaps(draw, length),
                vc=vc,
                user=_user(draw, vc),
                model=_MODELS[bisect_right(model_shares, draw())][0],
            )
        )
        missing -= length
    return sweeps


def _cumulative(weights: list[float]) -> list[float]:
    """Upper ends of the intervals of [0, 1) that belong to each weight; the last is open upwards."""
    ends = list(accumulate(weights))
    return [end / ends[-1] for end in ends[:-1]]


def _vc_shares(weights: list[float], vcs: int) -> list[float]:
    """As `_cumulative`, for another number of VCs: neighbours are merged, or split into equal parts."""
    sums = [0.0, *accumulate(weights)]
    ends = []
    for vc in range(1, vcs):
        at, within = divmod(vc * len(weights), vcs)
        ends.append((sums[at] + weights[at] * within / vcs) / sums[-1])
    return ends


def _length(draw: Draw, size: Size) -> int:
    if draw() >= size.several:
        return 1
    return min(int(2 * (1 - draw()) ** (-1 / size.tail)), _SWEEP_MAX)


def _draw_durations(draw: Draw, sweeps: list[_Sweep]) -> list[list[int]]:
    """Durations of the jobs of each sweep.

    The sweeps of a size, in random order, divide the range of shares from 0 to 1 into pieces in proportion to their
    jobs, and draw from their own piece. The jobs of a sweep are then similar, and all of them together follow the table
    however uneven the sweeps are; otherwise one long sweep of long jobs could decide the load.
    """
    found: list[list[int]] = [[] for _ in sweeps]
    for size in dict.fromkeys(sweep.size for sweep in sweeps):
        same = [at for at, sweep in enumerate(sweeps) if sweep.size is size]
        total = sum(len(sweeps[at].gaps_s) for at in same)
        before = 0
        for at in sorted(same, key=lambda _: draw()):
            length = len(sweeps[at].gaps_s)
            found[at] = _alike(draw, size, length, start=before / total, width=length / total)
            before += length
    return found


def _alike(draw: Draw, size: Size, length: int, *, start: float, width: float) -> list[int]:
    """Durations of one sweep, scattered a little more than its piece of the table."""
    scatter = _SCATTER_MAX * draw() ** 2 if length > 1 else 0.0
    shortest, longest = size.durations_s[0], size.durations_s[-1]
    durations_s = []
    for _ in range(length):
        middle_s = _duration(start + width * draw(), size.durations_s)
        factor = exp(scatter * _normal(draw)) if scatter else 1.0
        durations_s.append(round(min(max(middle_s * factor, shortest), longest)))
    return durations_s


def _duration(share: float, table: tuple[int, ...]) -> float:
    """The duration at this share of jobs: straight lines between the table's points on a logarithmic axis."""
    at = min(bisect_right(_SHARES, share), len(_SHARES) - 1) - 1
    within = (share - _SHARES[at]) / (_SHARES[at + 1] - _SHARES[at])
    return table[at] * exp(within * log(table[at + 1] / table[at]))


def _normal(draw: Draw) -> float:
    """Approximately normal: twelve uniform numbers have variance 1 and need no function that differs by machine."""
    return sum(draw() for _ in range(12)) - 6


def _gaps(draw: Draw, length: int) -> list[float]:
    """Seconds between each job of a sweep and the one before."""
    mean_s = _GAP_MIN_S + (_GAP_MAX_S - _GAP_MIN_S) * draw() ** 2
    return [0.0] + [-mean_s * log(1 - draw()) for _ in range(length - 1)]


def _user(draw: Draw, vc: int) -> str:
    """The larger virtual clusters have more users, and some users submit far more than others."""
    count = max(60 // (vc + 1), 3)
    return f"user-{vc + 1:02d}-{int(count * draw() ** 2) + 1:02d}"


def _draw_arrivals(
    draw: Draw, sweeps: list[_Sweep], durations_s: list[list[int]], span_s: int
) -> list[tuple[int, int, int]]:
    """(submission, sweep, number in the sweep) of all jobs, sorted; the first at 0, the last at the span."""
    hours = -(-span_s // 3600)
    season, swing = _season(draw, hours), _swing(draw, hours)
    height = _height(season, swing)
    small, large = (_cumulative(_busy(season, swing, height, share)) for share in (1.0, _LARGE_SWINGS))
    even = _spread_evenly(draw, sweeps, durations_s)
    rows = []
    for at, sweep in enumerate(sweeps):
        if sweep.size.gpus == 1:
            time_s = (bisect_right(small, draw()) + draw()) * 3600
        else:
            time_s = (bisect_right(large, even[at]) + draw()) * 3600
        for number, gap_s in enumerate(sweep.gaps_s):
            time_s += gap_s
            # Arrivals after the end are moved to the beginning, so that jobs do not pile up at the last second.
            rows.append((int(time_s) % span_s, at, number))
    rows.sort()
    # The ends are fixed, so that the load of the trace is the requested one.
    if len(rows) > 1:
        rows[-1] = (span_s, *rows[-1][1:])
    rows[0] = (0, *rows[0][1:])
    return rows


def _spread_evenly(draw: Draw, sweeps: list[_Sweep], durations_s: list[list[int]]) -> dict[int, float]:
    """For each sweep of several GPUs per job the share of all their work that comes before it.

    In random order they divide the range from 0 to 1 in proportion to their work, so that the work in a period follows
    its activity; otherwise the coincidence of a few very long jobs would decide how long all others wait.
    """
    works = {at: sweep.size.gpus * sum(durations_s[at]) for at, sweep in enumerate(sweeps) if sweep.size.gpus > 1}
    total, before = sum(works.values()), 0
    found = {}
    for at in sorted(works, key=lambda _: draw()):
        found[at] = (before + works[at] * draw()) / total
        before += works[at]
    return found


def _season(draw: Draw, hours: int) -> list[float]:
    """The logarithm of the activity of each hour by the slow waves."""
    waves = [
        (2 * pi / (24 * period_d), amplitude, 2 * pi * _SEASON_CHANCE * (draw() - 0.5))
        for period_d, amplitude in _SEASONS_D
    ]
    return [-sum(height * cos(turn * hour + phase) for turn, height, phase in waves) for hour in range(hours)]


def _busy(season: list[float], swing: list[float], height: float, share: float) -> list[float]:
    return [exp(height * slow + share * fast) for slow, fast in zip(season, swing, strict=True)]


def _height(season: list[float], swing: list[float]) -> float:
    """How high the seasons must be for the busiest weeks to stand out as in Philly's trace: this determines the length
    of queues more than anything else."""
    low, high = 0.0, _HEIGHT_MAX
    if 2 * len(season) < 3 * _PEAK_H:
        return 1.0
    for _ in range(12):
        middle = (low + high) / 2
        if _peak(_busy(season, swing, middle, _LARGE_SWINGS)) < _PEAK:
            low = middle
        else:
            high = middle
    return low


def _peak(busy: list[float]) -> float:
    """The busiest consecutive weeks relative to all of them."""
    sums = [0.0, *accumulate(busy)]
    most = max(sums[end] - sums[end - _PEAK_H] for end in range(_PEAK_H, len(sums)))
    return most / _PEAK_H / (sums[-1] / len(busy))


def _swing(draw: Draw, hours: int) -> list[float]:
    """The same by day of the week (Monday first), time of day, and persistent noise of days and hours."""
    days = _noise(draw, -(-hours // 24), _DAY_NOISE, _DAY_PERSISTS)
    noise = _noise(draw, hours, _HOUR_NOISE, _HOUR_PERSISTS)
    return [
        log(_OF_WEEK[hour // 24 % 7] * _OF_DAY[hour % 24]) + days[hour // 24] + noise[hour] for hour in range(hours)
    ]


def _noise(draw: Draw, count: int, deviation: float, persists: float) -> list[float]:
    """Normal numbers, each correlated with the one before."""
    fresh = deviation * (1 - persists**2) ** 0.5
    found = [deviation * _normal(draw)]
    while len(found) < count:
        found.append(persists * found[-1] + fresh * _normal(draw))
    return found


def _build(
    rows: list[tuple[int, int, int]], sweeps: list[_Sweep], durations_s: list[list[int]], *, width: int
) -> list[TraceJob]:
    shapes = shape_cache()
    jobs = []
    for index, (submit_s, at, number) in enumerate(rows, 1):
        sweep = sweeps[at]
        work_s = float(durations_s[at][number])
        spec = JobSpec(
            f"job-{index:0{width}d}",
            shapes(sweep.size.gpus),
            vc=f"vc-{sweep.vc + 1:02d}",
            user=sweep.user,
            model=sweep.model,
            expect_s=work_s,
        )
        jobs.append(TraceJob(float(submit_s), work_s, spec))
    return jobs
