"""Outside a Skep job a script runs as if the library were not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_scripts import run

from skep import train

LOOPS = {
    "steps": "seen = [step for step in job.steps(5)]",
    "epochs": "seen = [batch for epoch in job.epochs(2) for batch in job.batches([1, 2, 3])]",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_all_is_done_nothing_is_written_and_no_signal_is_taken(tmp_path: Path, loop: str) -> None:
    code = f"""
import signal
from skep import train
numbers = signal.valid_signals()
before = {{number: signal.getsignal(number) for number in numbers}}
job = train.join(weights=[1.0], save=print, load=print)
job.checkpoint()
job.report(loss=0.5, samples=3)
{LOOPS[loop]}
assert before == {{number: signal.getsignal(number) for number in numbers}}
print(seen, job.step, job.should_stop, job.rank, job.world_size)
"""
    done = run(code, tmp_path)
    seen = list(range(5)) if loop == "steps" else [1, 2, 3] * 2
    assert done.stdout.strip() == f"{seen} {len(seen)} False 0 1", done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_stop_ends_it_as_usual(tmp_path: Path) -> None:
    code = """
import os, signal
from skep import train
for step in train.join().steps(5):
    os.kill(os.getpid(), signal.SIGTERM)
"""
    assert run(code, tmp_path).returncode == -15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_s": -1}, "every_s must be"),
        ({"every_s": float("nan")}, "every_s must be"),
        ({"save": print}, "save and load belong together"),
        ({"model": object()}, "cannot keep 'model' \\(object\\)"),
    ],
)
def test_what_cannot_work_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        train.join(**arguments)  # type: ignore[arg-type]
