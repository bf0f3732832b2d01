"""``gradclip explain`` ends with an explanation or a sentence, for any input: one call, two calls, ``--to`` and ``--json``."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable

import pytest

from gradclip.commands import cli
from gradclip.explain.equivalents import FRAMEWORKS
from gradclip.natives import DIALECTS, NATIVES
from gradclip.natives.libraries import LIBRARIES

NAMES = sorted(
    {name for native in NATIVES for name in (*native.names[:4], native.code, native.last)}
    | {name for native in LIBRARIES.values() for name in native.names}
    | set(DIALECTS)
    | {f"gradclip.dialects.{dialect}" for dialect in DIALECTS}
    | {"gradclip.clip", "gradclip.clip_grad_norm_", "optax.chain", "Adam", "clip", "GM101", "gm999", "GT", "..."}
)
KEYWORDS = sorted({name for native in NATIVES for name in native.signature.parameters} | {"dtype", "lr", "é", "mode"})
USUAL = ("1.0", "0.5", "2", "c", "args.clip", "0.0", "inf")
LITERALS = """\
0 -0.0 -1 nan -inf float('nan') float('Infinity') float('x') float() math.inf 1e400 -1e400 1e308 1e-320 10**400 '1.0' b'1'
'inf' 'é' '' None True False ... 1j (1,) () [] [0] [-1] [[0]] ['a'] {} {0} {'a':1} (lambda:0) a[0] f(x) f(*a) *a **a (yield)
(x:=1) [*a] f'{x}' (not(x)) --x ~1 1_000 0x10 é ａ '\\ud800' '\\0' (await(x)) x==1 a@b -(x+y) 1. .5 1.0.real '''a\\nb'''
"""
ODD = [
    *LITERALS.split(),
    "9" * 5000,
    "x if y else z",
    "1if 1else 2",
    "[i for i in x]",
    "'1' '2'",
    "(" * 150 + "1" + ")" * 150,
    "[" * 90 + "]" * 90,
]
DAMAGE: tuple[Callable[[str], str], ...] = (
    lambda text: text[:-1],
    lambda text: f"{text}\n{text}",
    lambda text: f"x = {text}",
    lambda text: f"def f():\n  return {text}",
    lambda text: "(" * 200 + text + ")" * 200,
    lambda text: "f(" * 80 + text + ")" * 80,
    lambda text: f"\t{text}",
    lambda text: text + "\0",
    lambda text: text + "\ud800",
    lambda text: text.upper(),
    lambda text: text[len(text) // 3 :],
    lambda text: text[: len(text) // 2],
    lambda text: text.replace("_", "é"),
)


def literal(draw: random.Random) -> str:
    return draw.choice(USUAL if draw.random() < 0.4 else ODD)


def fitting(draw: random.Random) -> str:
    """Return a call that its signature allows."""
    if draw.random() < 0.4:
        dialect = draw.choice(sorted(DIALECTS))
        name, signature = draw.choice(("", "gradclip.dialects.")) + dialect, inspect.signature(DIALECTS[dialect])
    else:
        native = draw.choice(NATIVES)
        name, signature = draw.choice(native.names[:3]), native.signature
    if "(" in name:
        return name.replace("=)", f"={literal(draw)})")
    given, by_name = [], False
    for parameter in signature.parameters.values():
        by_name = by_name or parameter.kind is parameter.KEYWORD_ONLY or draw.random() < 0.3
        if parameter.default is parameter.empty or draw.random() < 0.4:
            given.append(f"{parameter.name}=" * by_name + literal(draw))
        else:
            by_name = True
    return f"{name}({', '.join(given)})"


def any_call(draw: random.Random, depth: int = 0) -> str:
    """Return a call with any arguments, or a name, or only a part of one."""
    if draw.random() < 0.1:
        return draw.choice(NAMES)
    name, bracket, keyword = draw.choice(NAMES).partition("(")
    values = [
        any_call(draw, depth + 1) if draw.random() < 0.1 and depth < 3 else literal(draw) for _ in range(draw.randrange(4))
    ]
    named = [f"{draw.choice(KEYWORDS)}={literal(draw)}" for _ in range(draw.randrange(3))]
    named += [keyword.replace("=)", f"={literal(draw)}")] if bracket else []
    return f"{name}({', '.join([*values, *named])})"


def text(draw: random.Random) -> str:
    made = fitting(draw) if draw.random() < 0.6 else any_call(draw)
    return draw.choice(DAMAGE)(made) if draw.random() < 0.15 else made


def refused(number: str) -> None:
    raise AssertionError(f"{number} is no JSON")


@pytest.mark.parametrize("seed", range(8))
def test_any_input_is_explained_or_refused_in_a_sentence(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    codes = []
    for _ in range(60):
        given = [text(draw)]
        form = draw.random()
        given += [text(draw)] if form < 0.35 else ["--to", draw.choice(("gradclip", *FRAMEWORKS))] if form < 0.6 else []
        given += ["--json"] if draw.random() < 0.4 else []
        if any(one.startswith("-") for one in given if not one.startswith("--")):
            continue  # argparse takes it for an option
        codes.append(cli.main(["explain", *given]))
        printed = capsys.readouterr()
        assert codes[-1] in (0, 2), given
        assert bool(printed.out) == (codes[-1] == 0), given
        if codes[-1] == 2:
            first = printed.err.partition("\n")[0]
            assert first.endswith((".", "?")), given
            assert "Traceback" not in printed.err, given
        elif "--json" in given:
            json.loads(printed.out, parse_constant=refused)
    assert {0, 2} <= set(codes)


def test_an_infinite_limit_in_json_is_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "torch.clip_grad_norm(inf)", "keras.clipnorm(1.0)", "--json"]) == 0
    example = json.loads(capsys.readouterr().out, parse_constant=refused)["example"]
    assert example["limits"] == ["inf", 1.0]
