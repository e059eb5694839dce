"""`skep.study` gives frames, words and a page."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import skep
from skep.core.errors import InputError
from skep.core.view import JobView
from skep.policies import Order
from skep.research import frames

ROWS = [
    {"job_id": f"j{number}", "submit_s": 40 * number, "duration_s": 20 + 400 * (number % 7 == 0), "gpus": 1}
    for number in range(60)
]


class Newest(Order):
    def key(self, job: JobView, now_s: float) -> float:
        return -job.submit_s


def test_frames_are_the_rows_of_the_files(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    made = skep.study(ROWS, cluster="1x2", policies=["fifo", Newest, "srsf"], seeds=3, out=out)
    for name, table in (("runs", made.runs), ("summary", made.summary), ("tests", made.tests)):
        written = list(csv.DictReader((out / f"{name}.csv").read_text().splitlines()))
        rows = frames.rows_of(table)
        assert [list(row) for row in rows] == [list(row) for row in written]
        for ours, theirs in zip(rows, written, strict=True):
            assert all(str(value) == theirs[key] or float(value) == float(theirs[key]) for key, value in ours.items())
    assert {row["policy"] for row in frames.rows_of(made.runs)} == {"fifo", "notebook.py:Newest", "srsf"}
    assert "srsf" not in {row["policy"] for row in frames.rows_of(made.tests)}
    assert made.recommendation.best is not None
    assert "Recommendation: " in repr(made)
    assert "<dt>" in made._repr_html_()
    assert "<iframe" in made.plot()._repr_html_()
    made.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_sizes_give_a_recommendation_each() -> None:
    made = skep.study(ROWS, cluster="1..3x1", policies=["fifo", "las"], seeds=2)
    assert list(made.recommendations) == ["1x1", "2x1", "3x1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [({"parallel": 0}, "parallel is 0"), ({"seeds": 0}, "seeds is 0"), ({"cluster": []}, "needs a cluster")],
)
def test_wrong_arguments_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        skep.study(ROWS, **({"cluster": "1x1", "policies": ["fifo"]} | given))  # type: ignore[arg-type]
