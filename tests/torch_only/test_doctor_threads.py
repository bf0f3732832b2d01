"""``gradclip doctor`` on scripts that train in threads: each thread has its own books."""

from __future__ import annotations

from pathlib import Path

import copies
import pytest
import watched

START = """
import _thread, queue, threading, time
from concurrent.futures import ThreadPoolExecutor
import torch
from on_torch import regression

clip = torch.nn.utils.clip_grad_norm_

def train(steps=6, pause=0.0, change=lambda p: None):
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([p], 1.0)
    for _ in range(steps):
        optimizer.zero_grad()
        (p.sum() * 3).backward()
        time.sleep(pause)
        clip([p], 1.0)
        change(p)
        optimizer.step()

def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
#: right programs: what follows the start, and the steps that the doctor should see
RIGHT = {
    "models of their own": ("in_threads(*[train] * 4)", 24),
    "no pass, gradients that are put": (
        """
def put():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([p], 1.0)
    for _ in range(6):
        p.grad = torch.ones(2)
        clip([p], 1.0)
        optimizer.step()

in_threads(*[put] * 4)
""",
        24,
    ),
    "steps by hand": (
        """
def by_hand():
    p = torch.nn.Parameter(torch.zeros(2))
    for _ in range(7):
        (p.sum() * 3).backward()
        clip([p], 1.0)
        time.sleep(0.002)
        with torch.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

in_threads(*[by_hand] * 3)
""",
        21,
    ),
    "a pass in a thread before an optimizer's first step in the main one": (
        """
model, optimizer, loss = regression()
for _ in range(6):
    in_threads(lambda: loss().backward())
    clip(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
        6,
    ),
    "a worker trains what the main thread made": (
        """
model, optimizer, loss = regression()

def work():
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        clip(model.parameters(), 1.0)
        optimizer.step()

in_threads(work)
""",
        6,
    ),
    "each step in another thread of a pool": (
        """
model, optimizer, loss = regression()

def step():
    optimizer.zero_grad()
    loss().backward()
    clip(model.parameters(), 1.0)
    optimizer.step()
    time.sleep(0.01)

with ThreadPoolExecutor(2) as pool:
    pool.submit(time.sleep, 0.005)
    for _ in range(6):
        pool.submit(step).result()
""",
        6,
    ),
    "passes in a thread, the step in the main one": (
        """
model, optimizer, loss = regression()
for _ in range(6):
    optimizer.zero_grad()
    in_threads(lambda: loss().backward(), lambda: loss().backward())
    clip(model.parameters(), 1.0)
    optimizer.step()
""",
        6,
    ),
    "losses in threads, as DataParallel has them": (
        """
model, optimizer, loss = regression()
with ThreadPoolExecutor(2) as pool:
    for _ in range(6):
        optimizer.zero_grad()
        sum(one.result() for one in [pool.submit(loss) for _ in range(2)]).backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
""",
        6,
    ),
    "hooks in a thread of the engine": (
        """
model, _, loss = regression()
params = list(model.parameters())
optimizers = {p: torch.optim.SGD([p], 0.01) for p in params}

def step(p, lock):
    clip([p], 1.0)
    optimizers[p].step()
    optimizers[p].zero_grad()
    lock.release()

def hook(p):
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(step, (p, lock))  # as the engine has a thread for each device
    lock.acquire()

for p in params:
    p.register_post_accumulate_grad_hook(hook)
for _ in range(6):
    loss().backward()
""",
        24,
    ),
}


def told(tmp_path: Path, body: str) -> watched.Told:
    return watched.told(watched.written(tmp_path, "torch", START + body), "--steps", "99")


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs(name: str, tmp_path: Path) -> None:
    body, steps = RIGHT[name]
    done = told(tmp_path, body)
    assert (done.report["ended"], done.report["said"], done.report["fault"]) == ("ended", "", None)
    assert {x["code"] for x in done.report["findings"]} <= {"GD302"}, done.report["findings"]
    assert len(done.report["timelines"]) == steps
    assert all(" clip_grad_norm_ " in x and x.count("clip_grad_norm_") == 1 for x in done.report["timelines"])
    if "put" not in name:
        assert all("gradients written" not in x for x in done.report["timelines"]), done.report["timelines"]
    assert done.report["seconds"]["step"] > 0


def test_the_mistake_of_one_thread_is_in_its_line(tmp_path: Path) -> None:
    body = """
def change(p):
    p.grad.mul_(2.0)  # here

in_threads(lambda: train(6, 0.003), lambda: train(6, 0.002, change), lambda: train(6, 0.001))
"""
    done = told(tmp_path, body)
    lines = (tmp_path / "train.py").read_text().splitlines()
    wrong = [(code, line) for code, line in done.found if code == "GD104"]
    assert len(wrong) == 1
    assert lines[wrong[0][1] - 1].endswith("# here")
    assert {code for code, _ in done.found} == {"GD104"}


WAITING = """
answers = queue.Queue()
in_threads(lambda: train(10_000, 0.001), lambda: train(10_000, 0.001))
answers.get()
"""


@pytest.mark.parametrize(
    "body",
    [
        WAITING,
        WAITING.replace("in_threads(", "threading.Thread(target=in_threads, args=(").replace("0.001))\n", "0.001))).start()\n"),
        """
def train_and_clean():
    try:
        train(10_000, 0.001)
    finally:
        time.sleep(1.0)  # Python 3.11 takes a thread whose join is interrupted for ended: the doctor waits for it in vain

in_threads(train_and_clean, train_and_clean)
""",
    ],
)
@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])  # a shell's script starts its background ignoring it
def test_enough_steps_end_all_threads(tmp_path: Path, body: str, handler: str) -> None:
    watched.written(tmp_path, "torch", START + body)
    code = f"import runpy, signal, sys; signal.signal(signal.SIGINT, signal.{handler}); "
    code += "sys.argv = 'gradclip doctor train.py --steps 5'.split(); runpy.run_module('gradclip', run_name='__main__')"
    done = copies.run("torch", "-c", code, cwd=tmp_path)
    assert done.stdout.lstrip().startswith("Stopped after enough steps: "), done.stdout + done.stderr
    assert ", 0 findings" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
