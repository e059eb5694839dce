"""How the processes of one job agree: they must save and exit after the same step, or the rest would wait forever."""

from __future__ import annotations

import atexit
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LET_GO_S = 0.5


class Alone:
    """One process that depends on no other."""

    rank = 0
    size = 1

    def agree(self, *values: int) -> tuple[int, ...]:
        """The maximum over all ranks, value by value. Every rank must call it equally often."""
        return values

    def part(self) -> None:
        """Called once, when the loop of this rank is over."""

    def leave(self, code: int) -> None:
        """Called instead, when the process is about to exit with this code because it was asked to."""


class RankGroup(Alone):
    """The processes of torch.distributed. If they do not use gloo anyway they get a gloo group for this: with NCCL,
    agreeing on GPU memory would make the CPU wait for the GPU in every step."""

    def __init__(self, torch: Any) -> None:
        is_gloo = torch.distributed.get_backend() == "gloo"
        self._torch = torch
        self._group = None if is_gloo else torch.distributed.new_group(backend="gloo")
        self.rank = int(torch.distributed.get_rank())
        self.size = int(torch.distributed.get_world_size())

    def agree(self, *values: int) -> tuple[int, ...]:
        tensor = self._torch.tensor(values, dtype=self._torch.int64, device="cpu")
        self._torch.distributed.all_reduce(tensor, op=self._torch.distributed.ReduceOp.MAX, group=self._group)
        return tuple(tensor.tolist())

    def part(self) -> None:
        """At the very end, after the script's own `finally`: a process that exits with its group still up may be
        aborted by the threads of gloo, and would seem to have crashed."""
        atexit.register(_disband)

    def leave(self, code: int) -> None:
        self.part()
        atexit.register(_leave_for_good, code)


def _leave_for_good(code: int) -> None:
    """All other exit handlers run first. After that no gloo thread may abort the rest of the process: everything is
    saved, and the exit code shows that it exited as requested."""
    atexit.unregister(_leave_for_good)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _disband() -> None:
    """A thread of gloo that still holds a tensor needs the interpreter to release it, and would abort the process if it
    tried while the interpreter shuts down. Nothing reports when it is done, so it gets a short wait."""
    torch = distributed()
    if torch is not None:
        torch.distributed.destroy_process_group()
    time.sleep(LET_GO_S)


def distributed() -> Any:
    """torch, if this process has set up torch.distributed; else None."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    return torch if dist is not None and dist.is_available() and dist.is_initialized() else None


def find_ranks() -> Alone:
    torch = distributed()
    return RankGroup(torch) if torch is not None and torch.distributed.get_world_size() > 1 else Alone()


def rank_and_size() -> tuple[int, int]:
    """The rank and size of torch.distributed or, before it is set up, of the environment."""
    torch = distributed()
    if torch is not None:
        return int(torch.distributed.get_rank()), int(torch.distributed.get_world_size())
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default
