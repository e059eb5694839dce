"""The published traces as they lie beside the repository."""

from __future__ import annotations

import gc
from pathlib import Path
from time import process_time

import pytest

from skep.profiles.read import read_profile
from skep.traces.read import read_trace
from skep.traces.stats import describe
from skep.traces.synth import synthesize
from skep.traces.write import write_native

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no public data in {DATA}")


def test_philly_is_what_its_page_says() -> None:
    found = describe(read_trace(DATA / "philly/philly.csv"), gpus=448)
    assert (found.format, found.jobs, found.dropped) == ("philly-csv", 82_247, {})
    assert round(found.gpu_hours) == 978_078
    assert found.span_s // 86400 == 108
    assert {part.name: part.jobs for part in found.sizes}["1"] == 76_627
    assert found.sizes[-1].name == "128"


def test_philly_is_read_quickly() -> None:
    gc.collect()
    started_s = process_time()
    read_trace(DATA / "philly/philly.csv")
    # 0.33 s where it was written; the limit leaves room for slow machines and catches an order of magnitude.
    assert process_time() - started_s < 2


@pytest.mark.parametrize(
    ("name", "jobs", "dropped", "endless"),
    [
        ("openb_pod_list_default.csv", 7255, {"never scheduled": 897}, 0),
        ("openb_pod_list_gpushare100.csv", 6943, {"never scheduled": 1209}, 0),
        ("openb_pod_list_multigpu50.csv", 9061, {}, 9061),
    ],
)
def test_alibaba_pods(name: str, jobs: int, dropped: dict[str, int], endless: int) -> None:
    found = describe(read_trace(DATA / "alibaba-2023" / name))
    assert (found.format, found.jobs, found.dropped, found.endless_jobs) == (
        "alibaba-2023",
        jobs,
        dropped,
        endless,
    )


@pytest.mark.parametrize(
    "name", ["philly/philly.csv", "alibaba-2023/openb_pod_list_default.csv"], ids=["philly", "alibaba"]
)
def test_a_converted_trace_has_the_same_jobs(tmp_path: Path, name: str) -> None:
    published = read_trace(DATA / name)
    write_native(published, tmp_path / "native.csv")
    assert read_trace(tmp_path / "native.csv").jobs == published.jobs


def test_gavel_steps_become_seconds_by_the_published_throughputs(tmp_path: Path) -> None:
    throughputs = read_profile(DATA / "gavel/simulation_throughputs.json")
    model = "ResNet-18 (batch size 32)"
    path = tmp_path / "one.trace"
    path.write_text(f"{model}\tpython main.py\tcwd\t--steps\t0\t1000\t1\t1\t-1\t0\n")
    steps_per_s = throughputs.steps_per_s(model, 1, "v100")
    assert steps_per_s is not None
    assert read_trace(path, profile=throughputs).jobs[0].work_s == pytest.approx(1000 / steps_per_s)
    assert throughputs.steps_per_s("Nothing", 1, "v100") is None


def test_a_made_trace_is_like_philly() -> None:
    real = describe(read_trace(DATA / "philly/philly.csv"))
    made = describe(synthesize(jobs=20_000, load=0.8, seed=0))
    for name in ("p10", "p25", "p50", "p75", "p90", "mean"):
        assert 0.7 < made.duration_s[name] / real.duration_s[name] < 1.4, name
    share = {part.name: part.jobs / made.jobs for part in made.sizes}
    for part in real.sizes:
        if part.jobs > 1000:
            assert 0.7 < share[part.name] / (part.jobs / real.jobs) < 1.4, part.name
