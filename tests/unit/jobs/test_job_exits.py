"""What an exit means, and whether to try again."""

from __future__ import annotations

import signal

import pytest

from skep.jobs.exits import CAUSES, CLASSES, classify, react

KINDS = {"success", "stop", "user", "platform", "resource", "unknown"}


@pytest.mark.parametrize(
    ("code", "kind", "reaction"),
    [
        (0, "success", "never"),
        (1, "unknown", "to-max"),
        (77, "unknown", "to-max"),
        (255, "unknown", "to-max"),
        (128 + signal.SIGINT, "platform", "some"),
        (128 + signal.SIGQUIT, "platform", "some"),
        (128 + signal.SIGKILL, "platform", "some"),
        (128 + signal.SIGTERM, "platform", "some"),
        (128 + signal.SIGILL, "user", "never"),
        (128 + signal.SIGBUS, "user", "never"),
        (128 + signal.SIGFPE, "user", "never"),
        (128 + signal.SIGPIPE, "user", "never"),
        (128 + signal.SIGABRT, "unknown", "to-max"),
        (128 + signal.SIGSEGV, "unknown", "to-max"),
        (128 + signal.SIGHUP, "unknown", "to-max"),
        (127, "user", "never"),
        (-1001, "platform", "always"),
        (-9999, "unknown", "to-max"),
    ],
)
def test_codes(code: int, kind: str, reaction: str) -> None:
    found = classify(code, "")
    assert (found.kind, found.reaction) == (kind, reaction)


@pytest.mark.parametrize(
    ("log", "code", "reaction"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", 225, "never"),
        ("torch.OutOfMemoryError: x", 225, "never"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", 223, "some"),
        ("bash: line 1: pyton: command not found", 220, "never"),
        ("ModuleNotFoundError: No module named 'torch'", 230, "never"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", 228, "never"),
        ("  File x\nSyntaxError: invalid syntax", 229, "never"),
        ("main.py: error: unrecognized arguments: --lrr", 226, "never"),
        ("IndexError: list index out of range", 231, "never"),
        ("OSError: [Errno 98] Address already in use", 253, "some"),
        ("Segmentation fault (core dumped)", 232, "never"),
        ("Aborted (core dumped)", 233, "never"),
        ("json.decoder.JSONDecodeError: Expecting value", 227, "never"),
        ("all is well", 1, "to-max"),
        ("", 1, "to-max"),
    ],
)
def test_the_log_names_what_the_code_leaves_open(log: str, code: int, reaction: str) -> None:
    found = classify(1, "step 1\n" + log + "\n")
    assert (found.code, found.reaction) == (code, reaction)


def test_the_last_complaint_counts_and_old_ones_do_not() -> None:
    log = "ImportError: no apex\nCUDA out of memory\n"
    assert classify(1, log).code == 225
    assert classify(1, log + "step\n" * 40).code == 1


@pytest.mark.parametrize(
    ("log", "phrase"),
    [
        ("skep: cannot run './train.py': it is not executable", "a command is not executable"),
        ("skep: cannot run './data': Exec format error", "a command is not executable"),
        ("bash: line 1: ./data: cannot execute binary file: Exec format error", "a command is not executable"),
        ("bash: line 1: /tmp: Is a directory", "a command is a folder"),
        ("skep: cannot run '/tmp': it is not executable: it is a folder", "a command is a folder"),
        (
            "skep: cannot run './a': it is not executable: its interpreter does not exist",
            "the interpreter of a script does not exist",
        ),
        ("bash: ./a: /no: bad interpreter: No such file or directory", "the interpreter of a script does not exist"),
        ("bash: ./a: cannot execute: required file not found", "the interpreter of a script does not exist"),
        ("bash: line 1: /root/train.py: Permission denied", "permission was denied"),
        ("skep: cannot enter the folder '/root' as account ann: Permission denied", "permission was denied"),
        ("PermissionError: [Errno 13] Permission denied: 'x'\n./y: cannot execute", "a command is not executable"),
        ("", "a command could not be run"),
        ("bash: pyton: command not found", "a command could not be run"),
    ],
)
def test_126_says_why_the_command_did_not_run(log: str, phrase: str) -> None:
    found = classify(126, f"step 1\n{log}\n")
    assert (found.phrase, found.reaction) == (phrase, "never")


def test_a_code_that_is_clear_is_not_refined() -> None:
    assert classify(143, "CUDA out of memory").code == 143
    assert classify(0, "CUDA out of memory").code == 0


@pytest.mark.parametrize("code", [220, 223, 250, 251, 253])
def test_a_process_cannot_claim_a_class_by_its_exit_code(code: int) -> None:
    found = classify(code, "")
    assert (found.code, found.kind, found.reaction) == (code, "unknown", "to-max")


@pytest.mark.parametrize(
    ("cause", "kind", "reaction"),
    [
        ("stop", "stop", "never"),
        ("oom", "user", "never"),
        ("time-limit", "stop", "never"),
        ("node-lost", "platform", "always"),
        ("preempted", "platform", "always"),
        ("port-taken", "platform", "always"),
        ("gang-timeout", "resource", "backoff"),
        ("launch-failed", "unknown", "to-max"),
    ],
)
def test_what_the_engine_knows_comes_first(cause: str, kind: str, reaction: str) -> None:
    found = classify(137, "CUDA out of memory", cause=cause)
    assert (found.kind, found.reaction) == (kind, reaction)


def test_the_table_is_whole() -> None:
    assert set(CAUSES.values()) <= set(CLASSES)
    assert {row.kind for row in CLASSES.values()} == KINDS
    assert all(row.phrase and "\n" not in row.phrase + row.advice for row in CLASSES.values())


def test_tries() -> None:
    user, failed, killed, late = (classify(0, "", cause="oom"), classify(1, ""), classify(137, ""), CLASSES[251])
    assert react(user, 0, 5) == (False, 0.0)
    assert [react(failed, used, 2)[0] for used in range(4)] == [True, True, False, False]
    assert react(failed, 0, 0)[0] is False
    assert react(failed, 10**6, -1)[0] is True
    assert [react(killed, used, 0) for used in (0, 1, 2, 7, 8)] == [
        (True, 1),
        (True, 2),
        (True, 4),
        (True, 60),
        (False, 0),
    ]
    assert [react(late, used, 0) for used in (0, 1, 2, 3, 4, 50)] == [
        (True, delay) for delay in (60, 120, 240, 480, 900, 900)
    ]
