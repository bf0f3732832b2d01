"""The status of ``gradclip doctor --ranks N`` is that of process 0, unless another one fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gradclip.doctor import launch


@pytest.mark.parametrize(("first", "other", "status"), [(0, 0, 0), (1, 0, 1), (1, 1, 1), (0, 1, 2), (-9, 0, 2), (0, -9, 2)])
def test_the_status_of_two_processes(first: int, other: int, status: int) -> None:
    ends = [f"os.kill(os.getpid(), {-code})" if code < 0 else f"os._exit({code})" for code in (first, other)]
    started = [subprocess.Popen([sys.executable, "-S", "-c", f"import os; {end}"]) for end in ends]
    assert launch._status(started) == status
