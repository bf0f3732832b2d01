"""The doctor under torchrun says what only another process does wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from launched import TIME_LIMIT

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.needs("has_total_norm")
def test_the_clip_of_bloom_176b(tmp_path: Path) -> None:
    """Process 1 does not clip its replicas; the README shows what the doctor says of it."""
    shutil.copy(Path(__file__).with_name("bloom.py"), tmp_path)
    command = [*TORCHRUN, "--module", "gradclip", "doctor", "bloom.py", "--steps", "6"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert "3 steps, 3 clips, 1 finding" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
    (shown,) = re.findall(r"^```text\n(G[DM].*?)^```$", (pages.ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert shown in done.stdout
    drifts = re.findall(r"process [01]: (\S+) from the mean of both", done.stdout)
    assert len(drifts) == 2
    assert min(map(float, drifts)) > 0.1, "the replicas are no longer equal"
