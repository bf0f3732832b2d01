"""Runs a script or a module in this process, as ``python train.py`` and ``python -m package.module`` would."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradclip.core.errors import ArgumentError
from gradclip.doctor.recorder import EnoughSteps

__all__ = ["Ended", "run"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended."""

    how: str  #: "stopped": after enough steps; "ended", "exited", "failed", "interrupted"
    said: str = ""  #: the exit code or the exception

    @property
    def is_failure(self) -> bool:
        return self.how in ("failed", "exited")


def run(target: str, arguments: Sequence[str], is_module: bool, is_over: Callable[[], bool] = lambda: False) -> Ended:
    """Run the script until it ends.

    Args:
        target: the script's path, or the module's name.
        arguments: of the script.
        is_module: whether it is a module.
        is_over: whether there were enough steps: what ends the script then is the doctor's, whatever a framework makes of it.

    Raises:
        ValueError: if there is no such script.
    """
    if not is_module and not os.path.isfile(target):
        raise ArgumentError("There is no such script.", f"SCRIPT={target!r}", "gradclip doctor -m package.module for a module.")
    if not is_module and target.endswith(".ipynb"):
        hint = "write a script of it, with jupyter nbconvert --to script, and give that to the doctor."
        raise ArgumentError("The doctor runs scripts, not notebooks.", f"SCRIPT={target!r}", hint)
    before = sys.argv, sys.path[:], sys.modules.get("__main__")
    sys.argv = [target, *arguments]
    sys.path[:0] = [os.getcwd() if is_module else os.path.dirname(os.path.realpath(target)), *_from_environment()]
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            _run_file(target)
    except EnoughSteps:
        return Ended("stopped")
    except SystemExit as error:
        if error.code is None or error.code == 0:
            return Ended("ended")
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return Ended("exited", str(error.code))
    except KeyboardInterrupt:
        return Ended("stopped" if is_over() else "interrupted")
    except BaseException as error:
        if is_over() or _was_stopped(error):
            return Ended("stopped")
        frames = _of_script(error)
        if is_module and frames is None and isinstance(error, ImportError):
            hint = "from the folder that has it, as python -m names it: gradclip doctor -m package.train."
            raise ArgumentError("There is no such module to run.", f"-m {target!r}: {error}", hint) from None
        traceback.print_exception(type(error), error, None if isinstance(error, SyntaxError) else frames)
        said = traceback.format_exception_only(error)
        return Ended("failed", "".join(said[-1:] if isinstance(error, SyntaxError) else said).strip())
    finally:
        _settle(is_over)
        sys.argv, sys.path[:] = before[0], before[1]
        if before[2] is not None:
            sys.modules["__main__"] = before[2]
    return Ended("ended")


def _settle(is_over: Callable[[], bool]) -> None:
    """Take an interrupt that another thread has sent after the script's last line."""
    with contextlib.suppress(KeyboardInterrupt):
        is_over()
        time.sleep(0)


def _from_environment() -> list[str]:
    """The folders of PYTHONPATH that this process has left, the current one for example: the script may import from there."""
    entries = os.environ.get("PYTHONPATH", "")
    folders = [os.path.abspath(entry) for entry in entries.split(os.pathsep)] if entries else []
    return [folder for folder in folders if folder not in sys.path]


def _run_file(path: str) -> None:
    path = os.path.abspath(path)  # as Python shows it in __file__ and in tracebacks
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _was_stopped(error: BaseException | None) -> bool:
    """Whether an exception was raised while the script was stopped, by its own cleaning up for example."""
    while error is not None:
        if isinstance(error, EnoughSteps):
            return True
        error = error.__cause__ or error.__context__
    return False


def _of_script(error: BaseException) -> types.TracebackType | None:
    """The traceback from the script's first frame on; None if no line of it has run."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        frames = frames.tb_next
    return frames
