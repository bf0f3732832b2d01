"""``gradclip doctor`` leaves a training of PyTorch as it is, and runs it as Python would."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import copies
import pytest
import watched
from launched import TIME_LIMIT, environment

import gradclip
from gradclip.commands import cli
from gradclip.core import engine

LOSSES = """\
import random
import sys
from pathlib import Path

import torch

import helper

torch.manual_seed(helper.SEED)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
with Path(sys.argv[1]).open("w") as file:
    for step in range(20):
        x = torch.randn(16, 4) + random.Random(step).random()
        for _ in range(2):
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        numbers = [loss.item(), norm.item(), *model[0].weight.flatten().tolist()]
        print(*map(float.hex, numbers), torch.get_rng_state().sum().item(), file=file, flush=True)
"""


def run(*command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in environment().items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")} | variables
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=TIME_LIMIT)


def doctor(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-P", "-m", "gradclip", "doctor", *arguments, cwd=cwd, **variables)


def test_the_numbers_are_the_same_to_the_bit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOSSES)
    (tmp_path / "helper.py").write_text("SEED = 3\n")
    alone = copies.run("torch", "-c", f"import sys; sys.path[0:0] = ['.']\n{LOSSES}", "alone.txt", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    done = watched.in_a_copy(tmp_path, "train.py", "--steps", "21", "--", "watched.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 steps, 20 clips, 0 findings" in done.stdout
    numbers = (tmp_path / "alone.txt").read_text()
    assert len(numbers.splitlines()) == 20
    assert (tmp_path / "watched.txt").read_text() == numbers


WHERE = """\
import json, sys
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, sys.modules["__main__"].__dict__ is globals()]))
"""


@pytest.mark.parametrize("command", [["folder/show.py"], ["-m", "folder.show"]])
def test_a_script_sees_what_python_shows_it(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "show.py").write_text(WHERE)
    plain = run(sys.executable, *command, "--lr", "1", "--", "x", cwd=tmp_path)
    done = doctor(*command, "--", "--lr", "1", "--", "x", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert done.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    assert done.returncode == 2  # no framework, no step
    assert "imported no framework" in done.stdout


def test_a_script_imports_from_the_current_folder_if_the_path_names_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "beside.py").write_text("NUMBER = 7\n")
    (tmp_path / "folder" / "show.py").write_text("import beside\nprint(beside.NUMBER)\n")
    root = Path(__file__).parents[2]  # a clone needs no install
    for paths in (".", str(tmp_path), f".{os.pathsep}{root}"):
        done = doctor("folder/show.py", cwd=tmp_path, PYTHONPATH=paths)
        assert done.stdout.splitlines()[:1] == ["7"], done.stderr
    assert "No module named 'beside'" in doctor("folder/show.py", cwd=tmp_path).stderr


FAILING = """\
import torch
from on_torch import regression

model, optimizer, loss = regression()
loss().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
model[0].weight.grad.add_(0.1)
optimizer.step()
1 / 0
"""


def test_a_script_that_fails_is_shown_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = watched.written(tmp_path, "torch", FAILING)
    assert cli.main(["doctor", str(script)]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "Traceback (most recent call last):"
    assert captured.err.splitlines()[1].startswith(f'  File "{script}", line ')
    assert captured.err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "The script failed (ZeroDivisionError: division by zero): 1 step, 1 clip, 1 finding" in captured.out
    script.write_text("import torch\nx = (\n")
    assert cli.main(["doctor", str(script)]) == 2
    captured = capsys.readouterr().out.splitlines()
    assert captured[1:] == ["The script failed (SyntaxError: '(' was never closed): 0 steps, 0 clips, 0 findings"]
    script.write_text("import torch\nraise SystemExit(3)\n")
    assert cli.main(["doctor", str(script)]) == 2
    assert "The script exited (3)" in capsys.readouterr().out


def test_an_interrupt_prints_what_was_seen(tmp_path: Path) -> None:
    text = "import time\nimport on_torch\non_torch.written()\nprint('now', flush=True)\ntime.sleep(600)\n"
    watched.written(tmp_path, "torch", text)
    command = [sys.executable, "-P", "-m", "gradclip", "doctor", "train.py"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=TIME_LIMIT)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "The script was interrupted: 6 steps, 6 clips, 1 finding" in out
    assert "GD104 on_torch.py:" in out


def test_everything_is_put_back() -> None:
    import torch

    def state() -> list[object]:
        optimizer, utils = torch.optim.Optimizer, torch.nn.utils
        return [
            *(utils.clip_grad_norm_, utils.clip_grad.clip_grad_norm_, torch.autograd.backward, torch.compile),
            *(optimizer.zero_grad, optimizer.add_param_group, torch.nn.Module.zero_grad, torch.amp.GradScaler.scale),
            *(engine.run, gradclip.clip_grad_norm_, sys.argv, sys.path[:], sys.meta_path[:], sys.modules["__main__"]),
            sys.gettrace(),
        ]

    before = state()
    watched.ran("torch", "written")
    watched.ran("torch", "right_own")
    assert state() == before


def test_the_timeline_and_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(watched.command("torch", "right_accumulation", "--steps", "5")) == 0
    out = capsys.readouterr().out
    (line,) = [x for x in out.splitlines() if x.startswith("step ")]
    assert line.startswith("step 5    backward ×4 · clip_grad_norm_ ")
    assert re.search(r" → 1\.00 \(right_on_torch\.py:\d+\) · step SGD 4 of 4 parameters$", line)
    assert "Stopped after enough steps: 5 steps, 5 clips, 0 findings" in out
    assert "The clip takes " in out
    told = watched.ran("torch", "right_scaler")
    assert "   backward · unscale · clip_grad_norm_ " in told.report["timelines"][1]
    assert told.report["timelines"][2].endswith("the scaler left out the step of SGD 4 of 4 parameters")


def test_the_limit_to_take_and_the_exact_norms() -> None:
    told = watched.ran("torch", "right_small_limit", "--steps", "10")
    (finding,) = told.report["findings"]
    assert finding["code"] == "GD302"
    assert "10 norms are too few to choose a limit by: watch 20 steps or more" in finding["advice"]
    assert all(math.isclose(x["before"], x["returned"], rel_tol=1e-6) for x in told.report["norms"])
    assert all(math.isclose(x["after"], 1.0, rel_tol=1e-5) for x in told.report["norms"])


def test_a_limit_that_ten_norms_do_not_reach() -> None:
    (finding,) = watched.ran("torch", "right_large_limit", "--steps", "10").report["findings"]
    assert finding["code"] == "GD301"


def test_the_culprit_has_its_name() -> None:
    (finding,) = watched.ran("torch", "not_finite").report["findings"]
    assert "0.weight" in finding["text"]
    assert finding["steps"][0] == 4
    (finding,) = watched.ran("torch", "frozen_out").report["findings"]
    assert "2.bias, 2.weight" in finding["text"]


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="not in the environments of other versions")
    picture = tmp_path / "norms.png"
    watched.ran("torch", "right_loop", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_the_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gradclip.steps.monitor.picture.util.find_spec", lambda name: None)
    script = tmp_path / "train.py"
    script.write_text("print('ran')")
    assert cli.main(["doctor", str(script), "--plot", str(tmp_path / "norms.png")]) == 2
    out, err = capsys.readouterr()
    assert "python -m pip install 'gradclip[monitor]'" in err
    assert "ran" not in out + err


def test_what_it_cannot_watch_is_said() -> None:
    (unwatched,) = watched.ran("torch", "right_compiled", "--compiled").report["unwatched"]
    assert unwatched["what"] == "what a compiled function does inside"
    path, _ = watched.programs("torch")["right_compiled"]
    assert path.read_text().splitlines()[unwatched["line"] - 1].strip() == '@torch.compile(backend="eager")'


@pytest.mark.needs("stops_compiling")
def test_a_compiled_clip_runs_eagerly_and_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    told = watched.ran("torch", "right_compiled")
    assert told.report["unwatched"] == []
    assert len(told.report["norms"]) == 6
    assert [x["what"] for x in told.report["ran_eagerly"]] == ["torch.compile"]
    assert cli.main(watched.command("torch", "right_compiled", "--steps", "2")) == 0
    line = "Compiled code ran eagerly, to be watched: torch.compile (right_on_torch.py:"
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "The doctor needs one script or one module."),
        (["a.py", "-m", "a"], "The doctor needs one script or one module."),
        (["no such script.py"], "There is no such script."),
        (["a.ipynb"], "The doctor runs scripts, not notebooks."),
    ],
)
def test_wrong_usage(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ipynb").write_text("{}")
    assert cli.main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err.startswith(said)


CHILDREN = """\
import os, subprocess, sys
import torch
from on_torch import regression

model, optimizer, loss = regression()

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

child = os.fork()
if not child:
    train(20)
    print("the child has made its steps", flush=True)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
subprocess.run(["echo", "another child"], check=True)
train(3)
"""


def test_children_run_to_their_end_and_leave_json_alone(tmp_path: Path) -> None:
    watched.written(tmp_path, "torch", CHILDREN)
    done = watched.in_a_copy(tmp_path, "train.py", "--steps", "5", "--json")
    report = json.loads(done.stdout)
    assert (report["ended"], report["steps"], done.returncode) == ("ended", 3, 0)
    assert "the child has made its steps" in done.stderr
    assert "another child" in done.stderr


def test_a_process_that_fails_waits_for_no_other(tmp_path: Path) -> None:
    import torch

    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    alone = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    (tmp_path / "train.py").write_text("import torch\n1 / 0\n")
    code = (
        "import datetime, sys; from gradclip.backends.torch.watch import ranks; from gradclip.commands import cli; "
        f"ranks._WAIT = datetime.timedelta(seconds={2 * TIME_LIMIT}); "  # one that ends well waits longer than it may run
        "sys.exit(cli.main(['doctor', 'train.py']))"
    )
    done = copies.run("torch", "-c", code, env=environment(**alone), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ZeroDivisionError" in done.stderr


def test_arguments_of_the_script_without_the_mark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["doctor", "train.py", "--lr", "1"])
    assert "unrecognized arguments: --lr 1; what is for the script comes after --" in capsys.readouterr().err


RANKS = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(4):
    optimizer.zero_grad()
    {context}
        model(torch.randn(8, 4)).square().mean().backward()
    {clip}
    if dist.get_rank() == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    optimizer.step()
dist.destroy_process_group()
"""


NATIVE = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
GRADS = "[p.grad for p in model.parameters()]"
#: clips by a norm of gradients that the processes have not exchanged
BY_OWN_NORM = (
    NATIVE,
    f"torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, torch.nn.utils.get_total_norm({GRADS}))",
    "__import__('gradclip').clip_grad_norm_(model.parameters(), 1.0)",
)


@pytest.mark.parametrize(
    ("context", "clip", "codes"),
    [
        ("if True:", NATIVE, []),
        ("with model.no_sync():", BY_OWN_NORM[0], ["GD303"]),
        pytest.param("with model.no_sync():", BY_OWN_NORM[1], ["GD303"], marks=pytest.mark.needs("has_total_norm")),
        ("with model.no_sync():", BY_OWN_NORM[2], ["GD303"]),
    ],
)
def test_processes_that_disagree(tmp_path: Path, context: str, clip: str, codes: list[str]) -> None:
    (tmp_path / "train.py").write_text(RANKS.format(context=context, clip=clip))
    # torchrun starts it in test_doctor_ranks.py; this is the same without three imports of torch
    done = watched.on_two_processes(tmp_path, "train.py", "--json")
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert [x["code"] for x in report["findings"]] == codes
    assert report["steps"] == 4
    assert ("backward in no_sync" in report["timeline"]) == bool(codes)
    assert bool(done.returncode) == bool(codes)
