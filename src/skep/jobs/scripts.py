"""Scripts that are submitted in place of a job file: what they ask for, as a command that runs them."""

from __future__ import annotations

import re

from skep.core.errors import InputError

SBATCH = "#SBATCH"
LINE_MAX = 200
_OPTIONS = {
    **{"-J": "--name", "--job-name": "--name", "-t": "--time-limit", "--time": "--time-limit"},
    **{"-G": "--gpus", "--gpus": "--gpus", "--gpus-per-node": "--gpus", "--gres": "--gpus"},
    **{"-c": "--cpu", "--cpus-per-task": "--cpu"},
}
_GPUS = re.compile(r"(?:[A-Za-z][\w-]*:)?(\d{1,6})")
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d\d))?(?::(\d\d))?")


def refuse_script(text: str, source: str) -> None:
    """A script is not a job file; the hint is the command that submits it."""
    lines = text.splitlines()
    asked = [number for number, line in enumerate(lines, 1) if line.startswith(SBATCH)]
    if not asked and not text.startswith("#!"):
        return
    kind = "a batch script of Slurm" if asked else "a script"
    options = "".join(f" {option}" for option in dict.fromkeys(map(_option, lines)) if option)
    file = source if "/" in source or "." in source else "FILE"
    hint = f"`skep run --detach{options} -- bash {file}` runs it" + (
        "; #SBATCH lines are comments there, and a job array is a sweep" if asked else ""
    )
    line = asked[0] if asked else 1
    said = f"is {kind}, expected a job file"
    raise InputError(f"{source}:{line}: {said}", hint=hint).at("", line, said)


def _option(line: str) -> str:
    """The option of `skep run` for a line of #SBATCH; empty if there is none."""
    words = line[:LINE_MAX].partition(" #")[0].replace("=", " ", 1).split()
    name, value = words[1:] if len(words) == 3 and words[0] == SBATCH else ("", "")
    option = _OPTIONS.get(name, "")
    if option == "--gpus":
        kind, _, rest = value.partition(":") if name == "--gres" else ("gpu", "", value)
        gpus = _GPUS.fullmatch(rest) if kind == "gpu" else None
        return f"--gpus {gpus[1]}" if gpus else ""
    if option == "--time-limit":
        return _time_limit(value)
    is_plain = re.fullmatch(r"[\w.-]{1,80}", value) is not None
    return f"{option} {value}" if option and is_plain and (option == "--name" or value.isdecimal()) else ""


def _time_limit(value: str) -> str:
    """Of Slurm's minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    found = _TIME.fullmatch(value)
    if found is None:
        return ""
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1]:
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif found[4]:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    shown = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    return f"--time-limit {shown}" if seconds else ""
