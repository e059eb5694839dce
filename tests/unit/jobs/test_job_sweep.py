"""Sweeps: one file, a job for each combination."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.jobs.read import read_requests


def test_every_combination_is_a_job_of_one_group() -> None:
    text = """\
name: tune-${lr}
gpus: ${gpus}
sweep: {lr: [0.10, 1e-2], gpus: [1, 2]}
argv: [python, train.py, "--lr=${lr}", "${HOME}"]
env: {LR: "${lr}${lr}"}
"""
    requests = read_requests(text).requests
    assert [request.name for request in requests] == ["tune-0.10", "tune-0.10", "tune-1e-2", "tune-1e-2"]
    assert {request.group for request in requests} == {"tune"}
    assert [request.gpus for request in requests] == [1, 2, 1, 2]
    assert requests[2].tasks["task"].argv == ("python", "train.py", "--lr=1e-2", "${HOME}")
    assert requests[2].tasks["task"].env == {"LR": "1e-21e-2"}


def test_a_name_without_a_value_gets_a_number() -> None:
    requests = read_requests("{name: a, group: g, command: 'run ${x}', sweep: {x: [p, q]}}").requests
    assert [(request.name, request.group) for request in requests] == [("a-1", "g"), ("a-2", "g")]
    assert [request.tasks["task"].command for request in requests] == ["run p", "run q"]


def test_a_name_of_values_only_has_a_group_too() -> None:
    assert read_requests("{name: '${x}', command: ls, sweep: {x: [p]}}").requests[0].group == "sweep"


SWEPT = """\
name: tune
sweep: {lr: [0.1, 0.01], seed: [1]}
COMMAND
"""


@pytest.mark.parametrize(
    ("command", "said", "hint"),
    [
        (
            "command: python train.py --lr ${lrr}",
            r"job.yaml:3: command: \$\{lrr\} is not a parameter.*mean lr\?",
            "$lrr",
        ),
        (
            "command: python train.py --lr ${LR}",
            r"job.yaml:3: command: \$\{LR\} is not a .*did you mean lr\?",
            "lr, seed",
        ),
        ("command: ls\nworkdir: /data/${run}", r"job.yaml:4: workdir: \$\{run\} is not a parameter of the sweep", "lr"),
        ("argv: [python, '--lr=${lrr}']", r"job.yaml:3: argv\[1\]: \$\{lrr\} is not", "$lrr"),
        ("tasks: {w: {command: ls, env: {A: '${sed}'}}}", r"job.yaml:3: tasks.w.env.A: .*did you mean seed\?", "$sed"),
    ],
)
def test_an_unknown_parameter_is_refused_with_its_line(command: str, said: str, hint: str) -> None:
    with pytest.raises(InputError, match=said) as fault:
        read_requests(SWEPT.replace("COMMAND", command))
    assert hint in fault.value.hint


@pytest.mark.parametrize(
    "command",
    [
        "command: echo ${HOME} ${RANK} $lrr ${lr}",
        "command: for i in 1 2; do echo ${i} ${lr}; done",
        "command: 'out=run-${lr}; mkdir ${out}'",
        "command: 'while read -r a b; do echo ${a}${b}${lr}; done'",
        "tasks: {w: {command: 'echo ${batch} ${lr}', env: {batch: 32}}}",
        "command: echo ${lr:-1} ${x%.py}",
    ],
)
def test_variables_of_the_shell_are_left_to_it(command: str) -> None:
    assert len(read_requests(SWEPT.replace("COMMAND", command)).requests) == 2


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("{}", "sweep is a mapping, expected at least one list of values"),
        ("{x: []}", "sweep.x is an empty list, expected a list of values"),
        ("{x: 1}", "sweep.x is 1, expected a list"),
        ("{x: [[1]]}", r"sweep.x\[0\] is a list, expected a name"),
        ("{'a b': [1]}", "expected a name of letters"),
        ("{x: [../up]}", "name is .*, expected a name"),
        (str({f"x{at}": list(range(10)) for at in range(5)}), "sweep makes 100,000 jobs, expected at most 10,000"),
    ],
)
def test_faults(sweep: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_requests(f"{{name: 'n${{x}}', command: ls, sweep: {sweep}}}")
