"""What the scheduler asks of a loop that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skep.train import asked, join


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the task that this process is."""
    monkeypatch.setattr(asked, "EVERY_S", 0.0)
    for name in ("SKEP_TASK_DIR", "SKEP_CHECKPOINT_DIR"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    return tmp_path / "SKEP_TASK_DIR"


def ask(task: Path, save: int, tune: int, **settings: object) -> None:
    aside = task / "aside"
    aside.write_text(json.dumps({"save": save, "tune": tune, "settings": settings}))
    aside.rename(task / asked.FILE)


@pytest.mark.parametrize("every_s", [None, 0.0])
def test_settings_change_between_steps(task: Path, every_s: float | None) -> None:
    job, seen = join(every_s=every_s, counts={"n": 0}), []
    for step in job.steps(4):
        seen.append(dict(job.settings))
        if step == 0:
            ask(task, 0, 1, batch=64)
        if step == 2:
            ask(task, 0, 2, batch=32)
            assert job.settings == {"batch": 64}
    assert seen == [{}, {"batch": 64}, {"batch": 64}, {"batch": 32}]


def test_a_checkpoint_that_is_asked_for_is_taken_once_and_the_loop_goes_on(task: Path) -> None:
    job, steps = join(every_s=None, counts={"n": 0}), []
    for step in job.steps(6):
        steps.append(job._saving.saved_step)
        if step == 1:
            ask(task, 5, 0)
    assert steps == [None, None, 2, 2, 2, 2]


def test_without_a_folder_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKEP_TASK_DIR", "SKEP_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    job = join()
    assert list(job.steps(2)) == [0, 1]
    assert job.settings == {}
