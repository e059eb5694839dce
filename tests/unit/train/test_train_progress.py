"""What a rank tells about itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from skep.train import progress
from skep.train.progress import ProgressFile


def told(folder: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads((folder / "progress.json").read_text(), parse_constant=pytest.fail)
    return values


def test_it_is_written_at_most_every_half_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    mine = ProgressFile(tmp_path)
    written = []
    for step in range(20):
        if mine.report(step, {"loss": 1 / (step + 1)}, 10):
            mine.write(step=step)
            written.append(step)
        now_s += 0.125
    assert written == [0, 4, 8, 12, 16]
    assert told(tmp_path)["samples_per_s"] == 80
    assert told(tmp_path)["loss"] == 1 / 17
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    measured = {point["step"]: point["samples_per_s"] for point in points if "samples_per_s" in point}
    assert measured == {4: 100, 8: 80, 12: 80, 16: 80}  # at first five reports in half a second


def test_the_curve_is_whole_at_first_and_thinned_out_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FULL_CURVE", 5)
    mine = ProgressFile(tmp_path)
    mine.write(step=0)
    for step in range(50):
        assert not mine.report(step, {"loss": step}, 0)
    mine.write(step=50)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert told(tmp_path)["loss"] == 49


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_null(tmp_path: Path, loss: float) -> None:
    mine = ProgressFile(tmp_path)
    mine.report(0, {"loss": loss}, 0)
    mine.write(step=1)
    assert told(tmp_path)["loss"] is None


def test_no_value_can_pass_for_another_field(tmp_path: Path) -> None:
    mine = ProgressFile(tmp_path)
    mine.report(3, {"left": 1, "step": 9, "lr": 0.1}, 0)
    mine.write(step=4, left=False)
    assert (told(tmp_path)["left"], told(tmp_path)["step"], told(tmp_path)["lr"]) == (False, 4, 0.1)


class OnGpu:
    """Asking for its value makes the cpu wait: it must be asked for only when it is written."""

    is_cuda = True

    def __init__(self) -> None:
        self.asked = 0

    def detach(self) -> OnGpu:
        return self

    def clone(self) -> OnGpu:
        return self

    def __float__(self) -> float:
        self.asked += 1
        return 0.25


def test_a_loss_on_a_gpu_is_left_there_until_it_is_written(tmp_path: Path) -> None:
    mine, loss = ProgressFile(tmp_path), OnGpu()
    mine.write(step=0)
    mine.report(0, {"loss": loss}, 0)
    assert loss.asked == 0
    mine.write(step=1)
    assert told(tmp_path)["loss"] == 0.25
