"""The meaning of an exit, and what to do about it: OpenPAI's exit codes, as far as they can occur here.

The class of an exit comes from what the engine knows (`cause`), else from the code of the process, else, if the code is
ambiguous, from the last lines of its log. Codes below zero and from 220 to 254 name classes; a process that itself
exits with such a code has simply failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

Kind = Literal["success", "stop", "user", "platform", "resource", "unknown"]
Reaction = Literal["never", "always", "backoff", "to-max", "some"]

LINES_READ = 30
"""Only the end of a log is searched for the cause; earlier lines may show errors that were caught."""
QUICK_DELAYS_S = (1.0, 60.0)
BACKOFF_DELAYS_S = (60.0, 900.0)
"""The shortest and the longest back-off in seconds; each is twice the one before."""
SOME = 8
"""Retries after failures that are possibly, but not certainly, due to the platform; a job may request more by
`retries`."""


class ExitClass(msgspec.Struct, frozen=True):
    code: int
    phrase: str
    kind: Kind
    reaction: Reaction
    advice: str = ""


_ROWS = (
    ExitClass(0, "succeeded", "success", "never"),
    ExitClass(-101, "preempted", "platform", "always"),
    ExitClass(-210, "stopped on request", "stop", "never"),
    ExitClass(-220, "other tasks ended the job", "stop", "never"),
    ExitClass(-230, "the job was made smaller", "stop", "never"),
    ExitClass(
        -310, "could not be started", "unknown", "to-max", "read the reason; the command or workdir may be wrong"
    ),
    ExitClass(-311, "could not be started yet", "resource", "always", "the machine lacks what the reason says"),
    ExitClass(-312, "its image could not be pulled", "unknown", "to-max", "check the image's name and the pull secret"),
    ExitClass(-313, "its configuration is wrong", "user", "to-max", "check the secrets, volumes and fields it names"),
    ExitClass(-314, "its node or the cluster rejected it", "resource", "backoff"),
    ExitClass(-1000, "it was evicted from its node", "platform", "always", "did it use more disk than it requested?"),
    ExitClass(-1001, "its node was lost", "platform", "always"),
    ExitClass(-1002, "its shim was killed", "platform", "some", "did the job kill its parent process?"),
    ExitClass(-1003, "it was killed while the server was down", "platform", "always"),
    ExitClass(
        -1004, "its time limit was reached", "stop", "never", "raise time_limit_s, or save and continue in a next job"
    ),
    ExitClass(-1005, "it was deleted from outside Skep", "platform", "always"),
    ExitClass(-1006, "its node could not be reached", "platform", "always"),
    ExitClass(-1200, "used more memory than it requested", "user", "never", "raise memory_gib, or use less"),
    ExitClass(-1205, "a GPU was not found", "platform", "always"),
    ExitClass(128, "a GPU memory (ECC) error is suspected", "platform", "to-max", "look at nvidia-smi -q -d ECC"),
    ExitClass(130, "killed by SIGINT", "platform", "always"),
    ExitClass(131, "killed by SIGQUIT", "platform", "always"),
    ExitClass(132, "killed by SIGILL", "user", "never", "the program was built for another CPU"),
    ExitClass(134, "killed by SIGABRT", "unknown", "to-max"),
    ExitClass(135, "killed by SIGBUS", "user", "never", "is /dev/shm full? use fewer data loader workers"),
    ExitClass(136, "killed by SIGFPE", "user", "never"),
    ExitClass(137, "killed by SIGKILL", "platform", "always", "was memory short? raise memory_gib"),
    ExitClass(139, "killed by SIGSEGV", "unknown", "to-max"),
    ExitClass(141, "killed by SIGPIPE", "user", "never"),
    ExitClass(143, "killed by SIGTERM", "platform", "always"),
    ExitClass(220, "a command was not found", "user", "never", "check the command, PATH and workdir"),
    ExitClass(221, "TensorFlow ran out of GPU memory", "user", "never", "use a smaller batch or more GPUs"),
    ExitClass(222, "a segmentation fault under MPI", "user", "never"),
    ExitClass(223, "a GPU memory (ECC) error", "platform", "always", "drain the node and reset the GPU"),
    ExitClass(224, "CUDA, its driver or cuDNN do not fit together", "user", "never", "check their versions"),
    ExitClass(225, "CUDA out of memory", "user", "never", "use a smaller batch or more GPUs"),
    ExitClass(226, "a bad parameter", "user", "never", "check the arguments of the command"),
    ExitClass(227, "bad data", "user", "never", "check the files it reads"),
    ExitClass(228, "a file or folder was not found", "user", "never", "check paths and workdir"),
    ExitClass(229, "a syntax error", "user", "never"),
    ExitClass(230, "an import failed", "user", "never", "install the module where the job runs"),
    ExitClass(231, "an index out of range", "user", "never"),
    ExitClass(232, "a segmentation fault", "user", "never"),
    ExitClass(233, "it dumped core", "user", "never"),
    ExitClass(234, "a command is not executable", "user", "never", "`chmod +x` it, or call it by its interpreter"),
    ExitClass(235, "permission was denied", "user", "never", "is the file executable, and open to the job's account?"),
    ExitClass(236, "a command could not be run", "user", "never", "read its log"),
    ExitClass(237, "the interpreter of a script does not exist", "user", "never", "check the first line of the script"),
    ExitClass(238, "a command is a folder", "user", "never", "name the program, not its folder"),
    ExitClass(251, "its GPUs were not given in time", "resource", "backoff"),
    ExitClass(253, "a port was taken", "platform", "always"),
    ExitClass(256, "failed", "unknown", "to-max", "read its log"),
    ExitClass(-8000, "failed for an unknown reason", "unknown", "to-max", "read its log"),
)
CLASSES = {row.code: row for row in _ROWS}

CAUSES = {
    "stop": -210,
    "completed": -220,
    "scale-down": -230,
    "preempted": -101,
    "node-lost": -1001,
    "launch-failed": -310,
    "shortage": -311,
    "image": -312,
    "config": -313,
    "rejected": -314,
    "evicted": -1000,
    "deleted": -1005,
    "unreachable": -1006,
    "shim-killed": -1002,
    "server-away": -1003,
    "time-limit": -1004,
    "oom": -1200,
    "gpu-missing": -1205,
    "gang-timeout": 251,
    "port-taken": 253,
}
"""Causes that an engine or the service knows better than the exit code does."""

_NOT_RUN, _NOT_FOUND = 126, 127
"""The exit codes of a shell, and of the shim, for a command that could not be started."""
_WHY_NOT_RUN = (
    (237, re.compile(r"interpreter does not exist|bad interpreter|cannot execute: required file", re.IGNORECASE)),
    (238, re.compile(r"it is a folder|: is a directory", re.IGNORECASE)),
    (234, re.compile(r"not executable|cannot execute|exec format error", re.IGNORECASE)),
    (235, re.compile(r"permission denied|operation not permitted", re.IGNORECASE)),
)
_SIGNALS = range(128, 144)
_PATTERNS = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        (223, r"uncorrectable ecc error|cuda_error_ecc_uncorrectable"),
        (225, r"cuda out of memory|cuda_error_out_of_memory|torch\.(cuda\.)?outofmemoryerror"),
        (221, r"resourceexhaustederror|oom when allocating tensor"),
        (224, r"cuda driver version is insufficient|cudnn_status_version_mismatch|cudnn library .*incompatible"),
        (222, r"mpirun noticed that process .{0,200} exited on signal 11"),
        (253, r"address already in use|\beaddrinuse\b"),
        (220, r"command not found"),
        (226, r"error: (unrecognized arguments|the following arguments are required|argument \S+: )"),
        (227, r"unpicklingerror|jsondecodeerror|badzipfile|unicodedecodeerror"),
        (229, r"syntaxerror|indentationerror|\btaberror|syntax error near"),
        (230, r"modulenotfounderror|importerror"),
        (228, r"filenotfounderror|notadirectoryerror|no such file or directory"),
        (231, r"indexerror|index out of (range|bounds)"),
        (232, r"segmentation fault"),
        (233, r"(?<!fault \()core dumped"),
    )
)


def classify(code: int, log_tail: str, *, cause: str = "") -> ExitClass:
    """The class of an exit; one without a class keeps its own code."""
    if cause in CAUSES:
        return CLASSES[CAUSES[cause]]
    found = _by_code(code)
    if code == _NOT_RUN:
        found = _by_log(log_tail, _WHY_NOT_RUN) or found
    elif found.kind == "unknown":
        found = _by_log(log_tail, _PATTERNS) or found
    # Evidence that only the job itself gives can be produced at will: a signal it sent itself, a line it printed.
    is_own = code > 0 and found.reaction == "always"
    return msgspec.structs.replace(found, reaction="some") if is_own else found


def _by_code(code: int) -> ExitClass:
    if code in (_NOT_RUN, _NOT_FOUND):
        return CLASSES[220 if code == _NOT_FOUND else 236]
    if code in CLASSES and (code <= 0 or code in _SIGNALS):
        return CLASSES[code]
    if code in _SIGNALS:
        return ExitClass(code, f"killed by signal {code - 128}", "unknown", "to-max")
    return msgspec.structs.replace(CLASSES[256 if code > 0 else -8000], code=code)


def _by_log(log_tail: str, patterns: Iterable[tuple[int, re.Pattern[str]]]) -> ExitClass | None:
    """By the last error message in the log."""
    end = "\n".join(log_tail[-20_000:].splitlines()[-LINES_READ:])
    last, best = -1, None
    for code, pattern in patterns:
        for match in pattern.finditer(end):
            if match.start() > last:
                last, best = match.start(), CLASSES[code]
    return best


def react(exit_class: ExitClass, retries_used: int, retries_max: int) -> tuple[bool, float]:
    """Whether to retry, and after how many seconds; a `retries_max` of -1 means without limit."""
    if exit_class.reaction == "never":
        return False, 0.0
    if exit_class.reaction == "to-max" and 0 <= retries_max <= retries_used:
        return False, 0.0
    if exit_class.reaction == "some" and retries_max >= 0 and retries_used >= max(retries_max, SOME):
        return False, 0.0
    least, most = BACKOFF_DELAYS_S if exit_class.reaction == "backoff" else QUICK_DELAYS_S
    return True, min(least * 2 ** min(retries_used, 30), most)
