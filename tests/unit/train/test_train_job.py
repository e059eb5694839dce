"""One process in the environment of a Skep job: it stops, goes on, finishes and tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from train_scripts import job_environment, run

LOOP = """
import os, random, signal
from skep import train

STOP_AT = int(os.environ.get("STOP_AT", -1))
STEPS = 8
random.seed(3)

class Model:
    def __init__(self): self.weight = 1.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]

def stop():
    for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)  # the second does nothing more

model, seen, counts, own = Model(), [], {}, random.Random(4)
job = train.join(model=model, seen=seen, counts=counts, own=own, every_s=None)
if STOP_AT == -2: stop()
try:
    for step in job.steps(STEPS):
        model.weight += random.random() + own.random()
        seen.append(step)
        counts[step % 2] = counts.get(step % 2, 0) + 1
        job.report(loss=model.weight, samples=2, lr=0.1)
        if step == STOP_AT: stop()
        if job.should_stop: print("asked")
finally:
    print("finally")
print(model.weight.hex(), seen, counts, random.random(), own.random())
"""

EPOCHS = """
import os, random, signal
from skep import train

class Shuffled:
    "Shuffles by the global source of chance when an epoch begins, and augments by it while it goes."
    def __len__(self): return 4
    def __iter__(self):
        order = list(range(4))
        random.shuffle(order)
        for each in order: yield each + random.random()

random.seed(5)
trace = []
job = train.join(trace=trace, every_s=None)
for epoch in job.epochs(3):
    random.random()  # chance that the script uses before its loader begins
    for batch in job.batches(Shuffled()):
        trace.append((epoch, batch * random.random()))
        if os.environ.get("STOP_AT") == str(job.step): os.kill(os.getpid(), signal.SIGTERM)
    trace.append(("end", epoch, random.random()))
    if os.environ.get("STOP_AFTER") == str(epoch): os.kill(os.getpid(), signal.SIGTERM)
print(trace, job.step)
"""


def progress(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "task" / "progress.json").read_bytes())
    return values


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


def test_a_stopped_run_ends_like_one_that_was_left_alone(tmp_path: Path) -> None:
    alone = run(LOOP, tmp_path)
    assert alone.returncode == 0, alone.stderr
    job = job_environment(tmp_path)
    for at in (0, 3, 4):
        done = run(LOOP, tmp_path, STOP_AT=str(at), **job)
        assert (done.returncode, done.stdout) == (143, "asked\nfinally\n"), done.stderr
        told = progress(tmp_path)
        assert (told["step"], told["steps"], told["checkpoint_step"]) == (at + 1, 8, at + 1)
        assert (told["left"], told["done"]) == (True, False)
    done = run(LOOP, tmp_path, **job)
    assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, "")
    assert (progress(tmp_path)["left"], progress(tmp_path)["done"]) == (False, True)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    job = job_environment(tmp_path)
    first = run(LOOP, tmp_path, **job)
    kept = checkpoints(tmp_path)
    again = run(LOOP, tmp_path, **job)
    assert again.stdout == first.stdout
    assert checkpoints(tmp_path) == kept == ["checkpoint-000001"]
    assert progress(tmp_path)["done"] is True


def test_asked_in_its_last_step_it_finishes(tmp_path: Path) -> None:
    done = run(LOOP, tmp_path, STOP_AT="7", **job_environment(tmp_path))
    assert done.returncode == 0
    assert (progress(tmp_path)["left"], progress(tmp_path)["done"]) == (False, True)


def test_asked_before_its_first_step_it_does_none(tmp_path: Path) -> None:
    done = run(LOOP, tmp_path, STOP_AT="-2", **job_environment(tmp_path))
    assert (done.returncode, done.stdout) == (143, "finally\n")
    assert (progress(tmp_path)["step"], progress(tmp_path)["left"]) == (0, True)


def test_a_damaged_checkpoint_costs_steps_but_changes_no_bit(tmp_path: Path) -> None:
    alone = run(LOOP, tmp_path)
    job = job_environment(tmp_path)
    for at in (1, 4):
        run(LOOP, tmp_path, STOP_AT=str(at), **job)
    path = tmp_path / "checkpoint" / "checkpoint-000002" / "rank-0.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    done = run(LOOP, tmp_path, **job)
    assert done.stdout == alone.stdout
    assert done.stderr == (
        "skep.train: checkpoint-000002 is damaged (rank-0.bin differs from what was written); using the one before\n"
    )


def test_a_loader_goes_on_in_the_middle_of_its_epoch(tmp_path: Path) -> None:
    alone = run(EPOCHS, tmp_path).stdout
    assert alone.endswith(" 12\n")
    for at in (0, 2, 3, 4, 7, 10):  # within an epoch, after its last batch, and in the first of the next
        folder = tmp_path / str(at)
        folder.mkdir()
        job = job_environment(folder)
        assert run(EPOCHS, tmp_path, STOP_AT=str(at), **job).returncode == 143
        assert run(EPOCHS, tmp_path, **job).stdout == alone, f"stopped after step {at}"


@pytest.mark.parametrize("epoch", [0, 1])
def test_asked_after_the_batches_of_an_epoch_it_goes_on_with_the_next(tmp_path: Path, epoch: int) -> None:
    job = job_environment(tmp_path)
    assert run(EPOCHS, tmp_path, STOP_AFTER=str(epoch), **job).returncode == 143
    assert progress(tmp_path)["step"] == 4 * (epoch + 1)
    assert run(EPOCHS, tmp_path, **job).stdout == run(EPOCHS, tmp_path).stdout


def test_checkpoints_on_demand_and_every_so_often(tmp_path: Path) -> None:
    code = """
import json, os
from pathlib import Path
from skep import train
job = train.join(every_s={every_s}, seen=[])
for step in job.steps(6):
    if step == {ask_at}: job.checkpoint()
    print(len(list(Path(os.environ["SKEP_CHECKPOINT_DIR"]).glob("checkpoint-*"))), end=" ")
"""
    for number, (every_s, ask_at, seen) in enumerate(
        [(None, 2, "0 0 0 1 1 1 "), (0, 9, "1 2 2 2 2 2 "), (600, 9, "0 " * 6)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(code.format(every_s=every_s, ask_at=ask_at), folder, **job_environment(folder))
        assert done.stdout == seen, done.stderr


def test_functions_of_the_script_save_and_load_in_a_folder(tmp_path: Path) -> None:
    code = """
from skep import train
def save(folder): (folder / "mine.txt").write_text(str(job.step))
def load(folder): print("loaded", (folder / "mine.txt").read_text())
job = train.join(save=save, load=load)
for step in job.steps(3): pass
"""
    job = job_environment(tmp_path)
    assert run(code, tmp_path, **job).stdout == ""
    assert run(code, tmp_path, **job).stdout == "loaded 3\n"


def test_where_nothing_can_be_saved_it_says_so_and_goes_on(tmp_path: Path) -> None:
    job = job_environment(tmp_path)
    (tmp_path / "checkpoint").touch()
    done = run(LOOP, tmp_path, STOP_AT="3", **job)
    assert done.returncode == 143
    assert done.stderr.startswith("skep.train: no checkpoint at step 4: ")
    assert progress(tmp_path)["left"] is True
    assert progress(tmp_path)["checkpoint_step"] is None


def test_where_no_progress_can_be_written_it_says_so_once_and_goes_on(tmp_path: Path) -> None:
    done = run(LOOP, tmp_path, SKEP_TASK_DIR=str(tmp_path / "none"))
    assert done.returncode == 0
    assert done.stderr.count("skep.train: progress cannot be written") == 1
    assert list(tmp_path.iterdir()) == []


def test_after_its_loop_a_script_ends_at_a_stop_as_usual(tmp_path: Path) -> None:
    for ending in ("pass", "break"):
        code = f"""
import os, signal
from skep import train
for step in train.join().steps(3): {ending}
os.kill(os.getpid(), signal.SIGTERM)
"""
        assert run(code, tmp_path, **job_environment(tmp_path)).returncode == -15


def test_ranks_that_do_not_know_each_other_keep_their_checkpoints_apart(tmp_path: Path) -> None:
    job = job_environment(tmp_path)
    for rank in ("0", "1"):
        assert run(LOOP, tmp_path, RANK=rank, WORLD_SIZE="2", STOP_AT="2", **job).returncode == 143
    assert checkpoints(tmp_path) == ["checkpoint-000001", "rank-1"]


def test_of_the_workers_of_torchrun_the_first_speaks(tmp_path: Path) -> None:
    job = job_environment(tmp_path) | {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2"}
    run(LOOP, tmp_path, LOCAL_RANK="1", **job)
    assert list((tmp_path / "task").iterdir()) == []
    run(LOOP, tmp_path, LOCAL_RANK="0", **job)
    assert progress(tmp_path)["done"] is True


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("list(job.steps(1)); list(job.steps(1))", "RuntimeError: a job has one training loop"),
        ("list(job.batches([1]))", "RuntimeError: job.batches() belongs inside"),
        (
            "[[*job.batches([1]), *job.batches([1])] for _ in job.epochs(1)]",
            "RuntimeError: job.batches() belongs inside",
        ),
        (
            "[list(job.batches(iter([1]))) for _ in job.epochs(1)]",
            "TypeError: job.batches() needs a loader with a length",
        ),
    ],
)
def test_a_wrong_use_is_named(tmp_path: Path, code: str, message: str) -> None:
    done = run(f"from skep import train; job = train.join(); {code}", tmp_path)
    assert message in done.stderr.splitlines()[-1]


def test_in_another_thread_it_says_that_it_hears_no_stop(tmp_path: Path) -> None:
    code = """
import threading
from skep import train
thread = threading.Thread(target=lambda: print(len(list(train.join().steps(3)))))
thread.start(); thread.join()
"""
    done = run(code, tmp_path, **job_environment(tmp_path))
    assert done.stdout == "3\n"
    assert "join() was not called in the main thread" in done.stderr
