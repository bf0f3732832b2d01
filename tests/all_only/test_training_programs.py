"""The training programs for lint's rules run, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from training_programs import PROGRAMS, Program

SECONDS = 600  #: a program takes a few; a busy machine is slow


@pytest.mark.drawn(4)
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program.main], ids=lambda program: program.name)
def test_the_program_runs(program: Program) -> None:
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "KERAS_BACKEND", "XLA_FLAGS")
    }
    done = subprocess.run(
        [sys.executable, str(program.main)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=variables | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
