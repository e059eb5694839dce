"""What a rank reports in its task folder: `progress.json` (its progress), `metrics.jsonl` (its curve)."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

from skep.train.checkpoints import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVERY_S = 0.5  # no reader reads more often
RUNGS_KEPT = 20
FULL_CURVE = 1000  # reports of a launch that are all in the curve; later ones only as often as progress is written


class ProgressFile:
    """Writes nothing without a task folder, and a full disk never ends the training."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._written_s = -math.inf
        self._has_warned = False
        self._values: dict[str, Any] = {}
        self._curve: list[dict[str, Any]] = []
        self._reports = 0
        self._samples = 0.0
        self._since_s = time.monotonic()
        self._rungs = Rungs(os.environ.get("SKEP_RUNGS", ""))

    def restart_clock(self) -> None:
        """Throughput counts from here: restoring is not training."""
        self._since_s = time.monotonic()

    def is_due(self) -> bool:
        """True if it is time to write."""
        return self._folder is not None and time.monotonic() - self._written_s >= EVERY_S

    def report(self, step: int, values: dict[str, Any], samples: float) -> bool:
        """Note a report. True if it is time to write."""
        if self._folder is None:
            return False
        noted = {key: _noted(value) for key, value in values.items()}
        self._values.update(noted)
        self._samples += samples
        self._reports += 1
        is_due = self._rungs.reached(step, values) or self.is_due()
        if is_due or self._reports <= FULL_CURVE:
            self._curve.append({**noted, "step": step, "at_s": round(_now_s(), 3)})
        return is_due

    def write(self, **fields: Any) -> None:
        if self._folder is None:
            return
        values: dict[str, Any] = {key: _number(value) for key, value in self._values.items()}
        values |= _diverged(self._values, values) | self._rungs.noted()
        now_s = time.monotonic()
        values.setdefault("loss", None)
        values["samples_per_s"] = self._throughput(now_s)
        self._written_s = now_s
        try:
            self._append()
            self._replace({**values, **fields, "at_s": round(_now_s(), 3)})
        except OSError as error:
            if not self._has_warned:
                warn(f"progress cannot be written: {error}")
            self._has_warned = True

    def _throughput(self, now_s: float) -> float | None:
        """Samples per second since the last write; the last known value if nothing was reported since."""
        if self._samples > 0 and now_s > self._since_s:
            self._values["samples_per_s"] = round(self._samples / (now_s - self._since_s), 3)
            self._samples, self._since_s = 0.0, now_s
            if self._curve:  # the curve of the throughput has a point for each write
                self._curve[-1]["samples_per_s"] = self._values["samples_per_s"]
        return self._values.get("samples_per_s")

    def _append(self) -> None:
        assert self._folder is not None
        points, self._curve = self._curve, []
        if points:
            lines = [json.dumps({key: _number(value) for key, value in point.items()}) for point in points]
            with (self._folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def _replace(self, content: dict[str, Any]) -> None:
        assert self._folder is not None
        temporary = self._folder / f".progress.{os.getpid()}"
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(self._folder / "progress.json")


class Rungs:
    """The metric of a search at the steps where its trials are compared, from `SKEP_RUNGS`: the metric, the first of
    these steps, and the factor from each to the next; 1: they are equally far apart."""

    def __init__(self, said: str) -> None:
        self.metric, first, factor = said.split() if said.count(" ") == 2 else ("", "1", "1")
        self.first, self.factor = float(first), float(factor)
        self.values: dict[int, float] = {}
        self._before = -1.0  # the last step with the metric; below 0: none in this run

    def reached(self, step: float, values: dict[str, Any]) -> bool:
        """True if a rung is reached with this report."""
        if self.metric not in values or values[self.metric] is None:
            return False
        before, self._before = self._before if self._before >= 0 else step - 1, step
        number, rung = self._next(before)
        if step < rung:
            return False
        value = _number(values[self.metric])
        while rung <= step:
            if value is not None:
                self.values[number] = value
            number, rung = self._next(rung)
        return True

    def _next(self, step: float) -> tuple[int, float]:
        """The first rung beyond this step."""
        number = int(max(step, 0.0) // self.first) if self.factor == 1 else 0
        while (rung := self.first * (number + 1 if self.factor == 1 else self.factor**number)) <= step:
            number += 1
        return number, rung

    def noted(self) -> dict[str, str]:
        latest = list(self.values.items())[-RUNGS_KEPT:]
        return {"rungs": " ".join(f"{number}:{value!r}" for number, value in latest)} if latest else {}


def _noted(value: Any) -> Any:
    """A number; a value on a GPU stays there until it is written, because reading it makes the CPU wait for the GPU."""
    value = value.detach() if hasattr(value, "detach") else value
    if getattr(value, "is_cuda", False):
        return value.clone()
    return value if value is None or isinstance(value, int) else float(value)


def _diverged(values: dict[str, Any], numbers: dict[str, Any]) -> dict[str, str]:
    """The names of values that are not finite, if there are any: JSON has no word for them."""
    names = [key for key, value in values.items() if value is not None and numbers[key] is None]
    return {"diverged": " ".join(names)} if names else {}


def _number(value: Any) -> float | int | None:
    """JSON has no NaN and no infinity."""
    if value is None:
        return None
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _now_s() -> float:
    return time.time()  # noqa: TID251 - in a job there is only the wall clock
