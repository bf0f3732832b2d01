"""Odd calls for ``gradclip explain``: one clear error and exit status 2, or an explanation."""

from __future__ import annotations

import pytest
from refusals import refused

from gradclip import dialects
from gradclip.commands.cli import main
from gradclip.migrate.codemod import migrate_source
from gradclip.natives.numbers import clipped
from gradclip.source.model import Options

NINES, HEXADECIMAL = "9" * 5000, "0x" + "f" * 3000

CALLS = {
    "digits": (f"torch.nn.utils.clip_grad_norm_(p, {NINES})", "The call is not valid Python."),
    "binary digits": (f"tf.clip_by_norm(g, 0b{'1' * 20_000})", "The call cannot be read: Exceeds the limit (4300 digits)"),
    "hexadecimal digits": (f"keras.optimizers.SGD(clipnorm=0x{'f' * 4000})", "The call cannot be read: Exceeds the limit"),
    "signs": (f"optax.clip({'-' * 1000}1)", "nested too deeply"),
    "a sum": (f"optax.clip({'1+' * 3000}1)", "nested too deeply"),
    "attributes": (f"optax.clip({'a.' * 3000}b)", "nested too deeply"),
    "words": (f"optax.clip({'not ' * 2000}1)", "nested too deeply"),
    "parentheses": (f"optax.clip({'(' * 5000}1{')' * 5000})", "The call is "),
    "brackets": (f"optax.clip({'[' * 5000}1{']' * 5000})", "The call is "),
    "calls": ("f(" * 5000 + ")" * 5000, "The call is "),
    "a long text": ("'" + "a" * 100_000 + "'", "gradclip knows no clip of that name."),
    "a code": ("GM" + "1" * 100_000, ""),
    "a byte": ("optax.clip(\udcff)", "The call is not text."),
    "a name of a byte": ("\udcff", "gradclip knows no clip of that name."),
    "nothing": ("", "gradclip knows no clip of that name."),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_calls(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    call, said = CALLS[name]
    refused(["explain", call], said, capsys)
    refused(["explain", "--json", call], said, capsys)
    refused(["explain", "keras.clipnorm", call], said, capsys)


LIMITED = ["torch.nn.utils.clip_grad_norm_(p, {})", "tf.clip_by_value(g, {0}, {0})", "keras.optimizers.SGD(clipnorm={})"]


@pytest.mark.parametrize("call", [*LIMITED, "tf.clip_by_norm(g, {})", "optax.adaptive_grad_clip({})"])
@pytest.mark.parametrize("limit", [HEXADECIMAL, f"-{HEXADECIMAL}", f"1{'0' * 400}", f"[{HEXADECIMAL}]"])
def test_a_limit_beyond_all_floats_is_explained(call: str, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["keras.clipnorm"], ["--to", "torch"]):
        assert main(["explain", call.format(limit), *more]) == 0
        said = capsys.readouterr()
        assert "internal error" not in said.out
        assert said.err == ""


@pytest.mark.parametrize("limit", [HEXADECIMAL, f"-{HEXADECIMAL}", f"0b{'1' * 20_000}"])
def test_a_limit_beyond_all_floats_is_migrated(limit: str) -> None:
    source = f"import torch\ntorch.nn.utils.clip_grad_norm_(p, {limit})\n"
    (site,) = migrate_source(source, Options()).sites
    assert site.code in ("GT101", "GM114")


@pytest.mark.parametrize(("order", "norm"), [(1e308, 4.0), (-1e308, 3.0), (300.0, 4.0), (3.0, 91.0 ** (1 / 3))])
def test_the_example_of_any_order(order: float, norm: float) -> None:
    (gradient,) = clipped(dialects.torch.clip_grad_norm(1.0, norm_type=order), [[3.0, 4.0]])
    assert gradient == pytest.approx([3 / norm, 4 / norm], rel=2e-6)
