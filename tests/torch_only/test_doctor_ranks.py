"""The doctor on several processes: what only another one does wrong, what is applied, and what stays equal."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import watched
from launched import TIME_LIMIT

REPLICAS = """\
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
model = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(rank)
expert = torch.nn.Linear(4, 4)
torch.nn.init.zeros_(expert.bias)
params = [*model.parameters(), *expert.parameters()]
optimizer = torch.optim.SGD(params, lr=0.05)
for step in range(4):
    x = torch.randn(8, 4)
    (model(x).square().mean() + expert(x).square().mean()).backward()
    squares = [sum(p.grad.square().sum() for p in x.parameters()) for x in (model, expert)]
    dist.all_reduce(squares[1])
    scale = min(1.0, 0.1 / (sum(squares).sqrt().item() + 1e-6))
    for parameter in params:
        parameter.grad.mul_(scale)
    if how == "drift" and rank and step == 2:
        model.module[2].bias.data += 0.5
    if how == "fail" and rank and step == 2:
        raise KeyError("of process 1")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
SHARDS = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    model(torch.randn(8, 4)).square().mean().backward()
    norm = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.to_local().mul_(0.1 / norm)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
#: a script that starts its two processes itself
STARTED = """\
import sys
import torch

def train(rank, scale):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        optimizer.zero_grad()
        (model(torch.ones(4, 3)) * scale ** rank).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 20.0)
        optimizer.step()
    assert False, "the doctor ends the process before"

torch.multiprocessing.start_processes(train, (float(sys.argv[1]),), 2, start_method="fork")
print("the script goes on")
"""
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


def doctor(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return watched.on_two_processes(folder, "train.py", "--", *arguments)


def test_replicas_beside_experts(tmp_path: Path) -> None:
    """The biases of the experts are equal zeros at first, and are not accused."""
    done = doctor(tmp_path, REPLICAS, "right")
    assert "4 steps, 0 clips, 0 findings" in done.stdout, done.stdout + done.stderr
    said = "On 2 processes: gradients scaled by one factor in 4 steps, 4 parameters equal to the last bit after 4 steps."
    assert said in done.stdout
    assert done.returncode == 0


def test_a_replica_that_drifts(tmp_path: Path) -> None:
    done = doctor(tmp_path, REPLICAS, "drift")
    assert "4 steps, 0 clips, 1 finding" in done.stdout, done.stdout + done.stderr
    assert re.search(r"^GD305 train.py:\d+: Replicas that drift apart \(step 3\)\n  module.2.bias differs", done.stdout, re.M)
    assert "3 parameters equal to the last bit after 4 steps" in done.stdout
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), "the status alone tells it"


def test_a_script_that_fails_in_one_process(tmp_path: Path) -> None:
    """Process 0 reports what it has seen, though it waits for the other one. The doctor itself starts both."""
    (tmp_path / "train.py").write_text(REPLICAS)
    command = [sys.executable, "-P", "-m", "gradclip", "doctor", "train.py", "--ranks", "2", "--", "fail"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert "KeyError: 'of process 1'" in done.stderr
    assert "The script failed" in done.stdout
    assert done.returncode == 2


@pytest.mark.needs("has_total_norm")  # with it came fully_shard
def test_a_norm_of_local_shards_by_hand(tmp_path: Path) -> None:
    done = doctor(tmp_path, SHARDS)
    said = (
        r"GD303 train.py:14: Processes that disagree \(step 1\)\n  process 0 scaled its gradients by \S+, process 1 by \S+\.\n"
    )
    assert re.search(said, done.stdout), done.stdout + done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(("scale", "status"), [("1", 0), ("3", 1)])
def test_processes_that_the_script_starts(tmp_path: Path, scale: str, status: int) -> None:
    """Each is watched, and the doctor compares them; the script goes on after them."""
    (tmp_path / "train.py").write_text(STARTED)
    done = watched.in_a_copy(tmp_path, "train.py", "--steps", "6", "--", scale)
    assert "the script goes on" in done.stdout, done.stdout + done.stderr
    assert f"Stopped after enough steps: 6 steps, 6 clips, {status} finding" in done.stdout
    assert ("On 2 processes: 6 norms equal" in done.stdout) is not bool(status)
    said = r"^GD303 train.py:11: .*\n  process 0 measured \S+, process 1 measured"
    assert bool(re.search(said, done.stdout, re.MULTILINE)) is bool(status)
    assert done.returncode == status
