"""What jobs that share a GPU get of it, mode by mode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import cluster, job

from skep.core.cluster import Allocation, Slice
from skep.core.share import Share
from skep.profiles.native import read_native
from skep.profiles.sharing import Costs, Party, SharedRate, Sharing, water_level
from skep.profiles.speed import Speed

PROFILE = """
default: {sharing: 0.9}
models:
  small: {use: {sm: 0.3, bandwidth: 0.2}}
  wide: {use: {sm: 0.4, bandwidth: 0.9}}
  big: {use: {sm: 1.0}}
  paired: {sharing: {small: 0.8, default: 0.5}}
"""


def speed() -> Speed:
    return read_native(PROFILE, "test").speed(cluster("1x1"))


def party(mode: str, milli: int = 0, limit: int = 1000, *, model: str = "", asked: int = 1000, **more: object) -> Party:
    """`asked` is what its duration was measured with."""
    priority, share = more.pop("priority", 0), Share(measured_milli=asked if more.pop("is_measured", True) else 0)
    spec = job(1, gpu_milli=asked, model=model, priority=priority, share=share).spec
    return Party(spec, Slice(0, 0b1, milli, limit=limit, mode=mode, **more))  # type: ignore[arg-type]


def parts(there: list[Party], sharing: Sharing | None = None) -> list[SharedRate]:
    return [(sharing or Sharing()).part_of(each, there) for each in there]


def shares(there: list[Party]) -> list[float]:
    return [part.share for part in parts(there)]


THREE = [
    party("token", 300, 600, asked=300),
    party("token", 400, 600, asked=400),
    party("token", 300, 500, asked=300),
]


def test_kubeshare_alone_exactly_the_limit() -> None:
    assert [shares([each]) for each in THREE] == [[0.6], [0.6], [0.5]]
    assert [parts([each])[0].rate for each in THREE] == pytest.approx([2, 1.5, 5 / 3])


def test_kubeshare_together_exactly_the_request_and_a_part_of_the_rest() -> None:
    assert shares(THREE) == [0.3, 0.4, 0.3]
    assert [part.rate for part in parts(THREE)] == pytest.approx([1, 1, 1])
    assert shares(THREE[:2]) == pytest.approx([0.5, 0.5])
    assert shares(THREE[::2]) == pytest.approx([0.5, 0.5])
    roomy = [party("token", 100, 300, asked=100), party("token", 200, 1000, asked=200)]
    assert shares(roomy) == pytest.approx([0.3, 0.7])


def test_nobody_is_faster_than_recorded_unless_the_trace_says_what_it_was_measured_with() -> None:
    unlimited = party("token", 300, 1000, asked=300, is_measured=False)
    assert parts([unlimited]) == [SharedRate(1.0, 0.3)]
    other = party("token", 200, 1000, asked=200)
    assert parts([unlimited, other]) == [SharedRate(1.0, 0.3), SharedRate(pytest.approx(3.5), pytest.approx(0.7))]
    alone = party("slice", group="g", asked=500, is_measured=False)
    assert parts([alone]) == [SharedRate(1.0, 1.0)]
    assert parts([party("slice", group="g", asked=500)]) == [SharedRate(2.0, 1.0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), st.integers(1, 20))
def test_a_token_is_never_wasted_nor_is_anybody_beyond_its_bounds(pairs: list[tuple[int, int]], size: int) -> None:
    bounds = [(low / 10, (low + more) / 10) for low, more in pairs]
    amount = max(size / 10, sum(low for low, _ in bounds))
    level = water_level(bounds, amount)
    got = [min(max(low, level), high) for low, high in bounds]
    assert sum(got) == pytest.approx(min(amount, sum(high for _, high in bounds)))
    above = [each for each, (low, high) in zip(got, bounds, strict=True) if low < each < high]
    assert above == pytest.approx([level] * len(above))


def test_turns_are_by_weight_less_the_switch() -> None:
    there = [party("slice", group="g", weight=weight, quantum_ms=1000) for weight in (1, 3)]
    costs = Costs(switch_s=0.1)
    assert parts(there, Sharing(costs=costs)) == [
        SharedRate(pytest.approx((1 - 0.1) / 4), 0.25),
        SharedRate(pytest.approx((3 - 0.1) / 4), 0.75),
    ]
    assert parts(there[:1]) == [SharedRate(1.0, 1.0)]


def test_the_quantum_of_a_group_is_the_smallest_that_a_member_names() -> None:
    there = [party("slice", group="g", quantum_ms=ms) for ms in (0, 2000, 500)]
    assert Sharing().quantum_s(there) == 0.5
    assert Sharing().quantum_s(there[:1]) == 60


@pytest.mark.parametrize(
    ("models", "rates"),
    [
        (["small", "small"], [1, 1]),
        (["small", "wide"], [1 / 1.1, 1 / 1.1]),
        (["big", "wide"], [1 / 1.4, 1 / 1.4]),
        (["paired", "small"], [0.8, 0.9]),
        (["paired", "other"], [0.5, 0.9]),
        (["small", "small", "small", "small"], [1 / 1.2] * 4),
    ],
    ids=["they fit", "bandwidth is short", "compute is short", "measured and usual", "usual", "four"],
)
def test_packed_jobs_slow_each_other_down(models: list[str], rates: list[float]) -> None:
    found = parts([party("pack", model=model) for model in models], Sharing(speed()))
    assert [part.rate for part in found] == pytest.approx(rates)
    assert sum(part.share for part in found) == pytest.approx(1)


def test_without_any_figures_packing_gains_nothing() -> None:
    assert parts([party("pack"), party("pack")]) == [SharedRate(0.5, 0.5)] * 2


@pytest.mark.parametrize(
    ("models", "rates"),
    [
        (["small", "small"], [1, 1]),
        (["big", "small"], [1 / 1.05, (1 - 1 / 1.05) / 0.3]),
        (["wide", "big"], [1 / 1.05, 1 - 0.9 / 1.05]),
    ],
)
def test_a_guaranteed_job_is_slowed_within_the_tolerance_and_guests_get_the_rest(
    models: list[str], rates: list[float]
) -> None:
    there = [party("lend", 1000, model=models[0]), party("lend", 0, model=models[1])]
    found = parts(there, Sharing(speed(), Costs(tolerance=0.05)))
    assert [part.rate for part in found] == pytest.approx(rates)
    assert sum(part.share for part in found) <= 1 + 1e-9


def test_guests_without_a_host_share_the_gpu() -> None:
    assert (
        parts([party("lend"), party("lend"), party("lend")])
        == [SharedRate(pytest.approx(1 / 3), pytest.approx(1 / 3))] * 3
    )


def test_lanes_run_together_and_jobs_of_a_lane_one_after_the_other() -> None:
    there = [
        party("lane", model="small", group="a"),
        party("lane", model="small", group="b"),
        party("lane", model="wide", group="b"),
    ]
    found = parts(there, Sharing(speed()))
    assert [part.rate for part in found] == pytest.approx([1, 0.5, 0.5 / 1.1])
    assert [part.share for part in found] == [0.5, 0.25, 0.25]
    one_lane = parts([party("lane", group="a"), party("lane", group="a")])
    assert one_lane == [SharedRate(0.5, 0.5)] * 2


def test_fixed_parts_do_not_depend_on_others() -> None:
    there = [party("mps", 300, 300, asked=300), party("mig", 428, 428, asked=428)]
    assert parts(there) == [SharedRate(1.0, 0.3), SharedRate(1.0, 0.428)]


def test_instant_gives_the_gpu_to_the_highest_priority_and_the_rest_to_others() -> None:
    there = [
        party("instant", model="big", priority=1),
        party("instant", model="small", priority=9, quantum_ms=1000),
        party("instant", model="big", priority=1),
    ]
    found = parts(there, Sharing(speed(), Costs(instant_s=0.02)))
    assert [part.share for part in found] == pytest.approx([0.68 / 0.98, 0.3 / 0.98, 0.0])
    assert [part.rate for part in found] == pytest.approx([0.68, 1, 0])


def test_parts_without_a_mode_saturate_a_gpu_too() -> None:
    there = read_native(PROFILE, "test").speed(cluster("1x2"))
    one = Allocation((Slice(0, 0b1, 500),), 0.5)
    both = Allocation((Slice(0, 0b11),), 2)
    wide, small, paired = (job(1, model=model).spec for model in ("wide", "small", "paired"))
    assert there.rate(wide, one, [small], 0)[0] == pytest.approx(1 / 1.1)
    assert there.rate(wide, one, [small, small], 0)[0] == pytest.approx(1 / 1.3)
    assert there.rate(wide, both, [small, small], 0)[0] == pytest.approx(2 / 1.1)
    assert there.rate(paired, one, [small], 0)[0] == pytest.approx(0.8)
    assert there.knows(wide, "", [small])
