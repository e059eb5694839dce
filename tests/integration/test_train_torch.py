"""The loss curve of an interrupted run equals that of an uninterrupted one bit for bit: real processes and PyTorch."""

from __future__ import annotations

import functools
import importlib.util
import signal
from pathlib import Path

import pytest
from interrupted import EXAMPLES, Training, interrupt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

DDP = ["--epochs", "3", "--samples", "1536", "--sleep", "0.02"]

LOADER = '''
import random, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from skep import train

class Noisy(Dataset):
    """Augmented in the worker process, from two sources of chance."""
    def __len__(self): return 160
    def __getitem__(self, index): return torch.rand(4) + random.random() + index

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(5))
job = train.join(model=model, optimizer=optimizer)
for epoch in job.epochs(3):
    for points in job.batches(loader):
        loss = (model(torch.nn.functional.dropout(points, 0.1)) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        with open(f"{sys.argv[-1]}.0", "a") as file: file.write(f"{job.step} {loss.item().hex()}\\n")
        time.sleep(0.02)
'''

CRASHES = """
import os, sys
import torch
from skep import train

torch.distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
job = train.join(model=model, optimizer=optimizer, every_s=0)
for step in job.steps(10):
    if step == 5 and job.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": os._exit(9)
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    with open(f"{sys.argv[-1]}.{job.rank}", "a") as file: file.write(f"{step} {loss.item().hex()}\\n")
"""

HASTY = """
import torch
from skep import train

torch.distributed.init_process_group("gloo")
job = train.join()
for step in job.steps(2): pass
group = torch.distributed.group.WORLD  # as a model would hold it
for _ in range(300): torch.distributed.all_reduce(torch.ones(1), async_op=True)
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Training]:
    """The run to compare with, made once for each number of ranks."""

    @functools.cache
    def run(ranks: int) -> Training:
        whole = Training(tmp_path_factory.mktemp("whole") / "job", EXAMPLES / "ddp.py", *DDP, ranks=ranks)
        whole.finish()
        return whole

    return functools.partial(run)


@pytest.mark.parametrize(("ranks", "torchrun"), [(1, False), (2, False), (2, True)], ids=["plain", "ddp", "torchrun"])
def test_stops_lose_no_step_and_change_no_bit(
    tmp_path: Path, uninterrupted: functools.partial[Training], ranks: int, torchrun: bool
) -> None:
    broken = Training(tmp_path / "job", EXAMPLES / "ddp.py", *DDP, ranks=ranks, torchrun=torchrun)
    assert interrupt(broken, signal.SIGTERM, times=2, seed=ranks + torchrun, most=8) == 2
    broken.finish()
    assert broken.curve() == uninterrupted(ranks).curve()
    assert broken.lines() == uninterrupted(ranks).lines(), "a step was computed twice"
    assert "Warning" not in broken.log()


def test_kills_go_on_from_the_last_checkpoint(tmp_path: Path, uninterrupted: functools.partial[Training]) -> None:
    broken = Training(tmp_path / "job", EXAMPLES / "ddp.py", *DDP, "--every", "0.1", ranks=2)
    assert interrupt(broken, signal.SIGKILL, times=2, seed=4, most=12) == 2
    broken.finish()
    assert broken.curve() == uninterrupted(2).curve()
    assert broken.lines() < 3 * uninterrupted(2).lines(), "every start began at the beginning"


def test_workers_that_torchrun_starts_again_go_on(tmp_path: Path) -> None:
    script = tmp_path / "crashes.py"
    script.write_text(CRASHES, "utf-8")
    training = Training(tmp_path / "job", script, ranks=2, torchrun=True)
    training.more = {"PET_MAX_RESTARTS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    training.finish()
    assert "failed (exitcode: 9)" in training.log()
    assert [list(curve) for curve in training.curve()] == [list(range(10))] * 2
    assert training.lines() <= 11, "at most the step under way was computed twice"


def test_a_rank_that_is_done_is_not_aborted_while_its_group_still_works(tmp_path: Path) -> None:
    script = tmp_path / "hasty.py"
    script.write_text(HASTY, "utf-8")
    Training(tmp_path / "job", script, ranks=2).finish()


def test_workers_of_a_loader_survive_the_stop_and_draw_the_same(tmp_path: Path) -> None:
    script = tmp_path / "loader.py"
    script.write_text(LOADER, "utf-8")
    whole, broken = Training(tmp_path / "whole", script), Training(tmp_path / "broken", script)
    whole.finish()
    for lines in (7, 19):  # in the middle of an epoch, and in the next
        broken.start()
        broken.wait_for(lines)
        broken.signal(signal.SIGTERM)
        assert broken.wait() == [143], broken.log()
        assert broken.progress()["left"] is True
    broken.finish()
    assert broken.curve() == whole.curve()
    assert broken.lines() == whole.lines()


def test_a_resize_changes_the_losses_by_rounding_only(tmp_path: Path) -> None:
    """4 ranks, 2, 4 again; the mean over the ranks is the loss of the whole batch."""
    steps = ["--steps", "40", "--sleep", "0.02"]
    whole = Training(tmp_path / "whole", EXAMPLES / "elastic.py", *steps, ranks=1)
    whole.finish()
    resized = Training(tmp_path / "resized", EXAMPLES / "elastic.py", *steps, ranks=4)
    borders = []
    for ranks, lines in ((4, 8), (2, 12)):
        resized.ranks = ranks
        resized.start()
        resized.wait_for(lines)
        resized.signal(signal.SIGTERM)
        assert resized.wait() == [143] * ranks, resized.log()
        borders.append(resized.progress()["step"])
    resized.ranks = 4
    resized.finish()
    assert "with 4 ranks instead of 2" in resized.log()
    curves = resized.curve()
    assert list(curves[0]) == list(range(40)), "every step once"
    assert [step for step in range(40) if step not in curves[3]] == list(range(*borders))
    for step, loss in whole.curve()[0].items():
        parts = [float.fromhex(curve[step]) for curve in curves if step in curve]
        assert sum(parts) / len(parts) == pytest.approx(float.fromhex(loss), rel=1e-4)
