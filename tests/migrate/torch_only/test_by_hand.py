"""Clips by norm written out, in 96 kinds: each is rewritten, and both versions give the same gradients."""

from __future__ import annotations

import textwrap

import pytest
import torch
from migrate.codemods import migrate, rewritten
from migrate.forms import TORCH_NORMS as NORMS
from migrate.forms import TORCH_SCALES as SCALES


def source(norm: str, scale: str) -> str:
    body = textwrap.indent(f"{NORMS[norm]}\n{SCALES[scale]}", "    ")
    return f"import torch\n\n\ndef clip(params, limit):\n{body}\n"


def clipped(code: str, limit: float) -> list[torch.Tensor]:
    scope: dict[str, object] = {}
    exec(compile(code, "kind", "exec"), scope)
    torch.manual_seed(3)
    params = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
    for one in params:
        one.grad = torch.randn_like(one) * 3
    scope["clip"](params, limit)  # type: ignore[operator]
    return [one.grad for one in params if one.grad is not None]


@pytest.mark.drawn(60)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_clip_written_out_is_one_call_of_the_same_value(norm: str, scale: str) -> None:
    code = source(norm, scale)
    migrated = migrate(code)
    assert rewritten(migrated) == ["GM402"]
    assert "limit / " not in migrated.source
    for limit in (0.5, 100.0):  # it clips; it does not
        before, after = clipped(code, limit), clipped(migrated.source, limit)
        for one, other in zip(after, before, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=0)
    assert not torch.equal(clipped(code, 0.5)[0], clipped(code, 100.0)[0])


#: what must not be rewritten: another meaning by one token
OTHERS = {
    "turned round": "if n < limit:\n    for p in params:\n        p.grad.mul_(limit / n)",
    "the other extreme": "c = max(1.0, limit / n)\nfor p in params:\n    p.grad.mul_(c)",
    "another divisor": "d = min(1.0, n / limit)\nfor p in params:\n    p.grad.div_(d)",
    "a minimum below": "c = limit / min(n, limit)\nfor p in params:\n    p.grad.mul_(c)",
    "the other choice": "c = limit / n if n < limit else 1.0\nfor p in params:\n    p.grad.mul_(c)",
    "another epsilon": "c = limit / (n + 1e-3)\nif c < 1:\n    for p in params:\n        p.grad.mul_(c)",
    "another bound": "c = min(2.0, limit / n)\nfor p in params:\n    p.grad.mul_(c)",
    "another limit": "if n > 2 * limit:\n    for p in params:\n        p.grad.mul_(limit / n)",
    "divided by the coefficient": "c = min(1.0, limit / n)\nfor p in params:\n    p.grad.div_(c)",
    "other gradients": "for p in params[1:]:\n    p.grad.mul_(min(1.0, limit / n))",
    "another gradient since": "params[0].grad = noise\nfor p in params:\n    p.grad.mul_(min(1.0, limit / n))",
    "other values since": "params[0].grad.data = noise\nfor p in params:\n    p.grad.mul_(min(1.0, limit / n))",
    "a factor more": "if n > limit:\n    for p in params:\n        p.grad = p.grad * limit / n / 2",
    "a square": "if n > limit:\n    for p in params:\n        p.grad = p.grad * p.grad * limit / n",
    "pairs": "c = min(1.0, limit / n)\nfor p, m in zip(params, masks):\n    p.grad.mul_(c)",
    "a guard of the other in a pair": "c = min(1.0, limit / n)\nfor p, m in zip(params, masks):\n    if m is not None:\n"
    "        p.grad.mul_(c)",
    "numbers": "c = min(1.0, limit / n)\nfor i, p in enumerate(params):\n    p.grad.mul_(c)",
    "another guard": "c = min(1.0, limit / n)\nfor p in params:\n    if mask is not None:\n        p.grad.mul_(c)",
    "the guard of another": "c = min(1.0, limit / n)\nfor p in params:\n    if p.mask is None:\n"
    "        continue\n    p.grad.mul_(c)",
}


@pytest.mark.drawn(60)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", OTHERS)
def test_another_meaning_is_not_rewritten(norm: str, scale: str) -> None:
    code = f"import torch\n\n\ndef clip(params, limit):\n{textwrap.indent(NORMS[norm] + chr(10) + OTHERS[scale], '    ')}\n"
    assert migrate(code).source == code


@pytest.mark.parametrize("guard", ["p.grad is not None", "g is not None", "mask is not None", "p.mask is not None"])
def test_a_norm_counts_every_gradient(guard: str) -> None:
    """A test of a gradient leaves out what is missing; any other test leaves out gradients."""
    lines = f"    g = p.grad\n    mask = limit.grad\n    if {guard}:\n        n += g.norm() ** 2"
    loop = f"n = 0\nfor p in params:\n{lines}\nn = n ** 0.5"
    listed = f"n = torch.stack([p.grad.norm() for p in params if {guard}]).norm()"
    scale = "c = min(1.0, limit / n)\nfor p in params:\n    p.grad.mul_(c)"
    for norm in (loop,) if guard.startswith("g ") else (loop, listed):
        body = textwrap.indent(f"{norm}\n{scale}", "    ")
        migrated = migrate(f"import torch\n\n\ndef clip(params, limit):\n{body}\n")
        assert rewritten(migrated) == ([] if "mask" in guard else ["GM402"]), norm


#: further away: what a function returns, a limit in a tensor, a divisor that is chosen
FARTHER = {
    "a function of the source": "n = total(params).add_(1e-8)\nh = min(limit / n, 1.0)\nfor p in params:\n    p.grad.mul_(h)",
    "a divisor that is chosen": "n = total(params)\nm = torch.tensor(limit)\nd = torch.where(n > m, n / m, torch.ones(()))\n"
    "for p in params:\n    p.grad.div_(d)",
    "statements between": "n = total(params)\nprint(n)\nc = min(1.0, limit / n)\nprint(c)\n"
    "for p in params:\n    p.grad.mul_(c)",
    "a guard in the loop": "n = total(params)\nc = min(1.0, limit / n)\nfor p in params:\n    if p.grad is not None:\n"
    "        p.grad.detach().mul_(c)",
    "a coefficient within the if": "n = total(params)\nif n > limit:\n    c = limit / n\n"
    "    for p in params:\n        p.grad.mul_(c)",
    "a limit on the device of the norm": "n = total(params)\nc = torch.tensor(limit, device=n.device) / (n + 1e-6)\n"
    "if c < 1:\n    for p in params:\n        p.grad.mul_(c)",
}
TOTAL = "import torch\n\n\ndef total(params):\n    return torch.stack([p.grad.norm() for p in params]).norm()\n"


@pytest.mark.parametrize("kind", FARTHER)
def test_a_clip_is_followed_through_names_and_functions(kind: str) -> None:
    code = f"{TOTAL}\n\ndef clip(params, limit):\n{textwrap.indent(FARTHER[kind], '    ')}\n"
    migrated = migrate(code)
    assert rewritten(migrated) == ["GM402"]
    for limit in (0.5, 100.0):
        for one, other in zip(clipped(migrated.source, limit), clipped(code, limit), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


MADE = ("list(given)", "[*given]", "[p for p in given if p.grad is not None]", "sorted(given, key=len)")
BEFORE = {
    "an optimizer": "torch.optim.SGD(params, lr=0.1)",
    "a step": "torch.optim.SGD(params, lr=0.1).step()",
    "a backward pass": "sum((p ** 2).sum() for p in params).backward()",
    "a gradient in place": "params[0].grad.mul_(3)",
    "a list that shrinks": "params.pop()",
    "a loop": "for p in params:\n    p.grad.add_(1)",
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("kind", BEFORE)
def test_a_list_of_parameters_may_be_made_long_before(made: str, kind: str) -> None:
    """The clip reads the gradients only in its loops over that list."""
    norm, scale = list(NORMS.values())[len(kind) % 6], list(SCALES.values())[len(kind + made) % len(SCALES)]
    body = textwrap.indent(f"params = {made}\n{BEFORE[kind]}\n{norm}\n{scale}", "    ")
    code = f"import torch\n\n\ndef clip(given, limit):\n{body}\n"
    migrated = migrate(code)
    assert rewritten(migrated) == ["GM402"]
    for limit in (0.5, 1e4):
        for one, other in zip(clipped(migrated.source, limit), clipped(code, limit), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_two_clips_with_the_same_names_leave_nothing_behind() -> None:
    once = f"n = torch.stack([p.grad.norm() for p in PARAMS]).norm()\n{SCALES['an if'].replace('params', 'PARAMS')}"
    body = textwrap.indent(f"{once.replace('PARAMS', 'some')}\nprint(n)\n{once.replace('PARAMS', 'others')}", "    ")
    migrated = migrate(f"import torch\n\n\ndef clip(some, others, limit):\n{body}\n")
    assert rewritten(migrated) == ["GM402", "GM402"]
    assert migrated.source.endswith(
        "    n = gradclip.clip_(some, paddle_rules.clip_grad_by_global_norm(limit)).norm\n    print(n)\n"
        "    gradclip.clip_(others, paddle_rules.clip_grad_by_global_norm(limit))\n"
    )


@pytest.mark.parametrize("name", ["c", "p"])
def test_a_name_within_the_clip_that_is_read_later_stays(name: str) -> None:
    body = "n = total(params)\nif n > limit:\n    c = limit / n\n    for p in params:\n        p.grad.mul_(c)\nprint(NAME)"
    code = f"{TOTAL}\n\ndef clip(params, limit):\n{textwrap.indent(body.replace('NAME', name), '    ')}\n"
    assert migrate(code).source == code


@pytest.mark.parametrize("norm", ["torch.linalg.norm(p.grad, 2)", "torch.linalg.matrix_norm(p.grad)", "torch.norm(p.grad, 1)"])
def test_another_norm_of_a_matrix_is_not_rewritten(norm: str) -> None:
    for scale in SCALES.values():
        body = textwrap.indent(f"n = sum({norm} ** 2 for p in params) ** 0.5\n{scale}", "    ")
        code = f"import torch\n\n\ndef clip(params, limit):\n{body}\n"
        assert migrate(code).source == code
