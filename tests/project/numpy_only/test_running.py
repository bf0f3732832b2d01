"""A process of tests that ends without a word says which test ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launched import TESTS, TIME_LIMIT, environment

CONFTEST = """
from running import Running

def pytest_configure(config):
    config.pluginmanager.register(Running("here", config.option.xmlpath))
"""
#: a copy that has closed all files, as a server does
CHILD = "import os, time; os.fork() or (os.closerange(0, 256), time.sleep(60), os._exit(0)); "
ENDS = {
    "a signal": "import os; os.kill(os.getpid(), 11)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "os._exit": "import os; os._exit(0)",
    "with a copy that lives on": f"{CHILD}os._exit(3)",
}


def ran(folder: Path, body: str, head: str = "") -> tuple[str, str]:
    """Return what the tests' process says, and what stands in the file for CI."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(f"{head}\ndef test_before(): pass\n\ndef test_ends():\n    {body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:gradclip", "--junitxml=it.xml"]
    tests = subprocess.Popen(
        [*command, folder], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    said = tests.communicate(timeout=TIME_LIMIT)[1]  # until the second process has ended too
    file = folder / "it.xml.ended"
    return said, file.read_text(encoding="utf-8") if file.exists() else ""


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_without_a_word_names_its_test(end: str, tmp_path: Path) -> None:
    said, file = ran(tmp_path, ENDS[end])
    assert file == "here: the tests' process ended in test_it.py::test_ends\n"
    assert file in said


def test_a_crash_of_an_import(tmp_path: Path) -> None:
    assert ran(tmp_path, "pass", "import os; os._exit(1)")[1] == "here: the tests' process ended in the collection\n"


@pytest.mark.parametrize("body", ["pass", "assert False", "raise KeyboardInterrupt", "raise SystemExit(3)"])
def test_tests_that_end_with_words_have_no_such_line(body: str, tmp_path: Path) -> None:
    said, file = ran(tmp_path, body)
    assert (file, "process ended" in said) == ("", False)


def test_each_run_of_the_tests_is_listened_to(pytestconfig: pytest.Config) -> None:
    assert [plugin for plugin in pytestconfig.pluginmanager.get_plugins() if type(plugin).__name__ == "Running"]
    assert (TESTS.parent / ".ci" / "run").read_text(encoding="utf-8").count(".xml.ended") == 1
