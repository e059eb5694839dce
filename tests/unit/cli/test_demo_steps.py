"""The demo's training script, what its steps say afterwards, and its options."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from skep.cli.demo import demo, training
from skep.cli.demo.stage import Stage, Unexpected
from skep.cli.demo.steps import Steps, steps_of

CURVE = training.undisturbed(40)
WHOLE = Steps(list(enumerate(CURVE)), [0])


class Told:
    """Stands for a stage whose job has written this."""

    def __init__(self, *logs: str) -> None:
        self.logs = logs

    def job(self, name: str) -> dict[str, int]:
        return {"attempts": len(self.logs)}

    def log(self, name: str, attempt: int) -> str:
        return self.logs[attempt - 1]


def test_it_learns() -> None:
    assert CURVE[0] == pytest.approx(0.693, abs=1e-3)
    assert sum(CURVE[-5:]) / 5 < 0.5


def test_other_numbers_of_tasks_give_the_same_up_to_rounding() -> None:
    points, weights = training.make_points(), [0.0] * training.FEATURES
    losses = []
    for step in range(10):
        shares = [training.share_of(points, step, rank, 4) for rank in range(4)]
        losses.append(training.descend(weights, [training.slope(weights, share) for share in shares]))
    assert losses == pytest.approx(CURVE[:10], rel=1e-9)


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, runpy; runpy.run_path(sys.argv[1]); sys.exit(bool({'numpy', 'torch', 'click'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, training.__file__], timeout=30).returncode == 0


def test_steps_are_read_from_the_logs_of_all_attempts() -> None:
    told = Told("starts at step 0\nstep 0 loss 0.5\nstep 1 loss 0.25\n", "step 1 loss 0.25\nstep 3 loss 0.125\ndone\n")
    found = steps_of(told, "job")  # type: ignore[arg-type]
    assert found == Steps([(0, 0.5), (1, 0.25), (1, 0.25), (3, 0.125)], [0, 1])
    assert (found.repeated, found.missing(4)) == (1, 1)


def test_a_loss_that_differs_in_its_last_bit_is_seen() -> None:
    assert WHOLE.is_undisturbed(40, is_exact=True)
    near = Steps([(step, loss * (1 + 1e-15)) for step, loss in WHOLE.seen], [0])
    assert not near.is_undisturbed(40, is_exact=True)
    assert near.is_undisturbed(40, is_exact=False)
    assert not Steps([(0, 0.7)], [0]).is_undisturbed(40, is_exact=False)


def test_what_does_not_happen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.cli.demo.stage.WITHIN_S", 0.1)
    on = Stage.__new__(Stage)
    with pytest.raises(Unexpected, match="expected that pigs fly; it did not happen within"):
        on.until("pigs fly", lambda: False)
    monkeypatch.setattr(Stage, "job", lambda self, name: {"state": "failed", "attempts": 1, "reason": "exit code 3"})
    with pytest.raises(Unexpected, match="it failed: exit code 3"):
        on.until_state("vit", "running")


@pytest.mark.parametrize("words", [["--keep", "--simulate"], ["--html", "x.html"]])
def test_options_that_do_not_go_together(words: list[str]) -> None:
    assert CliRunner().invoke(demo, words).exit_code == 2
