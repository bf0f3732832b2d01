"""``tools/replaced``: gradclip in the place of torch's functions, in a program that knows nothing of it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from replaced.command import replaced, shown
from replaced.compare import Outcome, Row

PROGRAM = """
import importlib.util
import math
assert importlib.util.find_spec("torch")  # a program may only ask for it first
import torch
from torch.nn.utils import clip_grad_norm_  # the program's own name

torch.manual_seed(0)
params = [torch.randn(shape).requires_grad_() for shape in ((30, 4), (1000,))]
for limit in (0.1, 1e6):
    for param in params:
        param.grad = torch.randn_like(param)
    clip_grad_norm_(iter(params), limit)
    torch.nn.utils.clip_grad_value_(params[0], 0.01)
for total in filter(None, [getattr(torch.nn.utils, "get_total_norm", None)]):  # since 2.6
    total(x for x in params)

params[0].grad[0, 0] = math.inf
params[1].grad = None
try:
    clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
except RuntimeError:
    refused = True
assert refused
torch.nn.utils.clip_grad.clip_grad_norm_(params, math.inf)
assert not params[0].grad.isnan().any(), "torch's own makes every gradient NaN"
"""


def test_each_call_is_compared_with_the_native_and_with_float64(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    rows, status = replaced([sys.executable, str(tmp_path / "program.py")])
    assert status == 0
    counts = {name.removeprefix("torch.nn.utils."): (row.calls, row.departed, row.beyond) for name, row in rows.items()}
    assert counts.pop("get_total_norm", (1, 0, 0)) == (1, 0, 0)
    assert counts == {"clip_grad_norm_": (4, 1, 0), "clip_grad_value_": (2, 0, 0)}
    row = rows["torch.nn.utils.clip_grad_norm_"]
    assert 0 < row.norm <= 0.5, shown(rows)
    assert row.native_norm > 0
    assert "inf" in row.first


def test_where_the_native_fails_gradclip_is_compared_with_float64() -> None:
    row, exact = Row(), Outcome(grads=[(np.array([1.0]), "float64")])
    for got in (1.0, 1.5):
        row.note(Outcome(grads=[(np.array([got]), "float16")]), Outcome(error=RuntimeError("no kernel")), exact, "()")
    assert (row.calls, row.beyond) == (2, 1)
    row.note(Outcome(error=ValueError("refused")), Outcome(grads=exact.grads), exact, "(-1,)")
    assert (row.calls, row.beyond) == (3, 2)


@pytest.mark.parametrize(("got", "beyond"), [(1 + 2.0**-21, 0), (1 + 2.0**-20, 1), (math.nan, 1)])
def test_a_row_counts_what_is_off(got: float, beyond: int) -> None:
    row, exact = Row(), Outcome(grads=[(np.array([1.0]), "float64")])
    row.note(Outcome(grads=[(np.array([got]), "float32")]), Outcome(grads=[(np.array([1.0]), "float32")]), exact, "(1.0,)")
    assert (row.calls, row.beyond, row.native_gradient) == (1, beyond, 0.0)
