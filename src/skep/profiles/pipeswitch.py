"""The cost of loading a model onto a GPU while it begins to run (PipeSwitch): the switching cost of mode `instant`.

Layers are copied in groups, and a group runs as soon as it is copied and the previous one has run. Every group has a
fixed cost, so few groups are cheap to copy while many groups begin to run early. The best grouping is found by a
branch-and-bound search.
"""

from __future__ import annotations

from collections.abc import Sequence

Grouping = tuple[int, ...]
"""The number of layers of each group."""


def switch_s(transfer_s: Sequence[float], execute_s: Sequence[float], each_s: float, grouping: Grouping) -> float:
    """From the first copied layer to the end of the last one's run, with layers in these groups."""
    copied_s = run_s = 0.0
    first = 0
    for size in grouping:
        copied_s += sum(transfer_s[first : first + size]) + each_s
        run_s = max(run_s, copied_s) + sum(execute_s[first : first + size])
        first += size
    return run_s


def best_grouping(transfer_s: Sequence[float], execute_s: Sequence[float], each_s: float) -> tuple[float, Grouping]:
    """The shortest time, and the groups: of several equally good ones, the one with the fewest layers first."""
    count = len(transfer_s)
    copy_left, run_left = _left(transfer_s), _left(execute_s)
    best: Grouping = (count,)
    best_s = switch_s(transfer_s, execute_s, each_s, best)

    def search(first: int, copied_s: float, run_s: float, groups: Grouping) -> None:
        nonlocal best_s, best
        if first == count:
            if run_s < best_s or (run_s == best_s and groups < best):
                best_s, best = run_s, groups
            return
        least_s = max(run_s + run_left[first], copied_s + copy_left[first] + each_s + execute_s[-1])
        if least_s > best_s:
            return
        copy_s = copied_s + each_s
        took_s = 0.0
        for end in range(first + 1, count + 1):
            copy_s += transfer_s[end - 1]
            took_s += execute_s[end - 1]
            search(end, copy_s, max(run_s, copy_s) + took_s, (*groups, end - first))

    search(0, 0.0, 0.0, ())
    return best_s, best


def _left(times_s: Sequence[float]) -> list[float]:
    """The suffix sums."""
    left = [0.0]
    for each_s in reversed(times_s):
        left.append(left[-1] + each_s)
    return left[::-1]
