"""What is no job file gets a line that says what it is, where, and how to run it."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.jobs.problems import read_all
from skep.jobs.read import read_requests

SLURM = """#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --gres=gpu:a100:4   # four of them
#SBATCH -t 1-02:30:00
#SBATCH --ntasks=2
#SBATCH --cpus-per-task 8
#SBATCH --partition=long
#SBATCH --output=%j.out
srun python train.py
"""


def test_a_script_of_slurm() -> None:
    with pytest.raises(InputError, match=r"train.sh:2: is a batch script of Slurm, expected a job file") as fault:
        read_requests(SLURM, "train.sh")
    command = "skep run --detach --name resnet --gpus 4 --time-limit 1590m --cpu 8 -- bash train.sh"
    assert f"`{command}`" in fault.value.hint
    reading, faults = read_all(SLURM, "job", "")
    assert (reading, [each.line for each in faults]) == (None, [2])


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--gpus=2", "--gpus 2"),
        ("-G v100:8", "--gpus 8"),
        ("--gpus-per-node=4", "--gpus 4"),
        ("--time=90", "--time-limit 90m"),
        ("--time=90:30", "--time-limit 5430s"),
        ("--time=2:00:00", "--time-limit 120m"),
        ("--time=2-12", "--time-limit 3600m"),
        ("--time=soon", ""),
        ("--job-name='; rm -rf /'", ""),
        ("--gres=license:1", ""),
        ("", ""),
    ],
)
def test_what_it_asks_for(line: str, option: str) -> None:
    with pytest.raises(InputError) as fault:
        read_requests(f"#SBATCH {line}\npython train.py\n", "a.sh")
    assert f"`skep run --detach{' ' if option else ''}{option} -- bash a.sh`" in fault.value.hint


def test_any_other_script() -> None:
    with pytest.raises(InputError, match=r"run.sh:1: is a script, expected a job file") as fault:
        read_requests("#!/usr/bin/env bash\npython train.py: 1\n", "run.sh")
    assert fault.value.hint == "`skep run --detach -- bash run.sh` runs it"


def test_a_job_file_may_have_such_lines_in_its_command() -> None:
    text = "name: a\ncommand: |\n  #!/bin/bash\n  #SBATCH --gpus=1\n  ls\n"
    assert read_requests(text).requests[0].name == "a"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\ntasks:\n\tworker:\n\t\tcommand: ls\n", 3),
        ("name: a\n\tgpus: 1\ncommand: ls\n", 2),
        ("name: a\ntasks:\n  worker:\n  \tcommand: ls\n", 4),
    ],
)
def test_tabs(text: str, line: int) -> None:
    with pytest.raises(InputError, match=rf"job\.yaml:{line}: is indented with a tab") as fault:
        read_requests(text)
    assert "expand -t 2 job.yaml" in fault.value.hint


def test_a_tab_elsewhere_is_not_blamed() -> None:
    with pytest.raises(InputError, match=r"job.yaml:5: is not YAML"):
        read_requests("name: a\ncommand: |\n  cat <<X\n  \tx\nenv: {a: b: c}\n")
