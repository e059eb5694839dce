"""What is written reads as the same jobs; a file appears whole or not at all."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.core.errors import InputError
from skep.core.model import GroupRef, JobSpec, Role, Shape, gpu_shape
from skep.core.share import Share
from skep.traces.read import read_trace
from skep.traces.trace import Trace, TraceJob
from skep.traces.write import native_text, write_native

names = st.text(alphabet='abcÄ→ ,"\n\r;_-0', min_size=1, max_size=8).map(str.strip)
amounts = st.floats(min_value=0, max_value=1e12)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    gpus = draw(st.integers(0, 200))
    milli = draw(st.integers(1, 1000)) if gpus else 1000
    return gpu_shape(
        gpus,
        gpu_types=draw(st.sampled_from([(), ("v100",), ("t4", "p100")])),
        gpu_milli=milli,
        spans_types=draw(st.booleans()),
        gpu_mem_gib=draw(amounts),
        cpu=draw(amounts if gpus else st.floats(min_value=0.001, max_value=1e9)),
        memory_gib=draw(amounts),
    )


SHARES = st.builds(
    Share,
    mode=st.sampled_from(["", "pack", "token", "lend"]),
    limit_milli=st.sampled_from([0, 1000]),
    weight=st.integers(1, 9),
    exclusion=names,
    persistent_gib=amounts,
    claim=st.sampled_from(["guaranteed", "opportunistic", "auto"]),
    promise_milli=st.sampled_from([0, 700]),
    tier=st.sampled_from(["basic", "premium"]),
).filter(lambda share: share.weight > 1 and not (share.promise_milli and share.tier != "basic"))
"""One that says nothing is read as none."""


@st.composite
def jobs(draw: st.DrawFn, id: str, before: list[str]) -> TraceJob:
    work_s = draw(st.one_of(amounts, st.just(math.inf)))
    optional: dict[str, Any] = {
        "vc": names.filter(bool),
        "user": names,
        "model": names,
        "priority": st.integers(-5, 5),
        "min_gpus": st.one_of(st.none(), st.integers(1, 4)),
        "max_gpus": st.one_of(st.none(), st.integers(4, 8)),
        "batch_size": st.one_of(st.none(), st.integers(1, 512)),
        "min_batch": st.one_of(st.none(), st.integers(1, 64)),
        "max_batch": st.one_of(st.none(), st.integers(64, 512)),
        "deadline_s": st.one_of(st.none(), amounts),
        "steps": st.one_of(st.none(), st.integers(0, 10**9)),
        "epochs": st.one_of(st.none(), st.integers(0, 10**6)),
        "group": names.map(lambda name: GroupRef(name) if name else None),
        "share": st.one_of(st.none(), SHARES),
        "needs": st.lists(st.sampled_from(before), unique=True).map(tuple) if before else st.just(()),
    }
    given = {name: draw(values) for name, values in optional.items() if draw(st.booleans())}
    shape = draw(shapes())
    share = given.pop("share", None)
    if share is not None and shape.gpus:
        given["share"] = msgspec.structs.replace(
            share, persistent_gib=min(share.persistent_gib, shape.roles[0].gpu_mem_gib)
        )
    spec = JobSpec(id, (shape,), expect_s=work_s if work_s < math.inf else None, **given)
    return TraceJob(draw(amounts), work_s, spec)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = [f"j{at}" for at in range(draw(st.integers(1, 6)))]
    made = [draw(jobs(id, ids[:at])) for at, id in enumerate(ids)]
    return Trace(name="jobs.csv", format="native", jobs=counted(sorted(made, key=lambda job: job.submit_s)))


def counted(jobs: list[TraceJob]) -> list[TraceJob]:
    """The members of each group in the order of the rows."""
    sizes: Counter[str] = Counter()
    found = []
    for job in jobs:
        if job.spec.group is not None:
            name = job.spec.group.id
            spec = msgspec.structs.replace(job.spec, group=GroupRef(name, index=sizes[name]))
            job = msgspec.structs.replace(job, spec=spec)
            sizes[name] += 1
        found.append(job)
    return found


@given(traces())
def test_a_written_trace_reads_as_the_same_jobs(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        write_native(trace, path)
        assert read_trace(path, format="native") == trace


def trace_of(*specs: JobSpec) -> Trace:
    return Trace("t", "native", [TraceJob(0.0, 1.5, spec) for spec in specs])


def test_only_columns_in_use_are_written() -> None:
    text = native_text(trace_of(JobSpec("a", (gpu_shape(2),), vc="v"), JobSpec("b", (gpu_shape(1, cpu=3),))))
    assert text == "job_id,submit_s,duration_s,gpus,vc,cpu\na,0,1.5,2,v,\nb,0,1.5,1,,3\n"


def test_cpus_instead_of_gpus_are_a_column() -> None:
    either = JobSpec("a", (gpu_shape(2, memory_gib=6), gpu_shape(0, cpu=16, memory_gib=6)))
    assert native_text(trace_of(either)).splitlines()[1] == "a,0,1.5,2,6,16"


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param((gpu_shape(1), gpu_shape(2)), id="several shapes"),
        pytest.param((Shape((Role(gpus=1), Role(cpu=1.0))),), id="several roles"),
        pytest.param((Shape((Role(count=2, gpus=4),)),), id="several gpus in a task"),
        pytest.param((gpu_shape(4, gpu_milli=500, is_apart=False),), id="parts of gpus, maybe of the same"),
    ],
)
def test_a_job_that_a_row_cannot_say_is_an_error(tmp_path: Path, shapes: tuple[Shape, ...]) -> None:
    with pytest.raises(InputError, match="job a cannot be written"):
        write_native(trace_of(JobSpec("a", shapes)), tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_native(trace_of(JobSpec("a", (gpu_shape(1),))), target)
    assert list(tmp_path.iterdir()) == [target]
