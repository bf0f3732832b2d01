"""The line of the README that tries the demo: it installs no framework but NumPy, though the machine has PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

from docs.test_install_lines import README
from installed import Installed


def test_the_demo_of_the_readme(tmp_path: Path) -> None:
    (line,) = re.findall(r"^    .*(pip install .*) && \.venv/bin/gradclip demo$", README, re.MULTILINE)
    environment = Installed(line.replace("-q ", ""), tmp_path)
    assert not {"torch", "tensorflow", "paddlepaddle", "jax"} & environment.names
    done = environment.run("-m", "gradclip", "demo", "--steps", "12")
    assert (done.returncode, "NumPy ran alone" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "pip install" not in done.stdout
