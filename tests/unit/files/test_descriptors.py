"""The limit of open files."""

from __future__ import annotations

import resource
import subprocess
import sys

CODE = """
import resource
from skep.files import untrusted
print(untrusted.STARTED_WITH, untrusted.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 512))

    done = subprocess.run([sys.executable, "-c", CODE], preexec_fn=few_files, capture_output=True, text=True)
    assert done.stdout == "128 512 (512, 512)\n"
