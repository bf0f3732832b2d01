"""In any formatting, an edit changes no other byte, and the rewritten source has the same meaning."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from migrate.codemods import options

from gradclip.migrate.codemod import migrate_source

# an import, and the function's name under that import
SPELLINGS = [
    ("import torch", "torch.nn.utils.clip_grad_norm_"),
    ("import torch as th", "th.nn.utils.clip_grad_norm_"),
    ("import torch.nn as nn", "nn.utils.clip_grad_norm_"),
    ("from torch import nn", "nn.utils.clip_grad_norm_"),
    ("import torch.nn.utils", "torch.nn.utils.clip_grad.clip_grad_norm_"),
    ("from torch.nn.utils import clip_grad_norm_", "clip_grad_norm_"),
    ("from torch.nn.utils.clip_grad import clip_grad_norm_ as cgn", "cgn"),
    ("from torch.nn.utils import (\n    weight_norm,\n    clip_grad_norm_,  # in place\n)", "clip_grad_norm_"),
    ("import os, torch", "torch.nn.utils.clip_grad_norm_"),
    ("import torch; import os", "torch.nn.utils.clip_grad_norm_"),
]
PARAMETERS = ["model.parameters()", "[p for p in model.parameters() if p.requires_grad]", "(self.a)", "every(a(), b())"]
LIMITS = ["1.0", "max_norm=args['clip']", "(lambda: 1)()", "max_norm = (\n2)", "5 if x else 6"]
OTHERS = ["", "norm_type=float('inf')", "error_if_nonfinite = True", "2", "foreach=None"]
STATEMENTS = [
    "{}",
    "norm = {}",
    "return_ = [{}]",
    "print({}, 'é')",
    "if {} > 1: pass",
    "x = {} if y else (z)",
    "a = 1; b = {}; c = 2",
]
BEFORE = [
    "",
    '"""Docstring."""\n\n',
    "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n",
    "from __future__ import annotations\n\n",
    "\n\n",
]

space = st.sampled_from(["", " ", "\n", "  # ünï\n", "\n\n    ", "\t", " \\\n", "\n# own line\n"])
inner = st.lists(space, min_size=6, max_size=6)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, str, str]:
    """Draw an import, the text before the function's name, the name as written, and the text after it."""
    imported, name = draw(st.sampled_from(SPELLINGS))
    others = draw(st.sampled_from(OTHERS))
    limit = draw(st.sampled_from(LIMITS))
    arguments = [draw(st.sampled_from(PARAMETERS)), limit]
    if others and not ("=" in limit.split("[")[0] and others == "2"):
        arguments.append(others)
    gaps = draw(inner)
    listed = ",".join(gaps[number] + text + gaps[number + 1] for number, text in enumerate(arguments))
    listed += draw(st.sampled_from(["", ",", ",  # the last\n"]))
    opened, closed = draw(st.sampled_from([("", ""), ("(", ")"), ("( ", "  # why\n)")]))
    statement = draw(st.sampled_from(STATEMENTS))
    before, after = statement.split("{}")
    indent = draw(st.sampled_from(["", "if a:\n    ", "def f(self, model, args):\n\twhile True:\n\t\t"]))
    return imported, indent + before + opened, name, closed + f"({listed})" + after


def source(imported: str, start: str, before: str, name: str, after: str, end: str) -> str:
    return f"{start}{imported}\n\n\n{before}{name}{after}{end}"


@given(
    calls(), st.sampled_from(BEFORE), st.sampled_from(["", "\n", "  # é\n", "\n\n# the end"]), st.sampled_from(["\n", "\r\n"])
)
@settings(max_examples=300)
def test_only_the_name_and_the_imports_change(parts: tuple[str, str, str, str], start: str, end: str, newline: str) -> None:
    imported, before, name, after = parts
    old = source(imported, start, before, name, after, end).replace("\n", newline)
    assume(is_python(old))  # a backslash before a comment, or a line break outside of brackets, is a syntax error

    new = migrate_source(old, options()).source

    body = f"{before}gradclip.clip_grad_norm_{after}{end}".replace("\n", newline)
    head = new.removesuffix(body)
    assert new == head + body
    assert "import gradclip" in head
    assert newline == "\n" or "\n" not in new.replace("\r\n", "")
    assert said(new) == said(old)
    assert migrate_source(new, options()).source == new


@given(calls(), st.lists(space, min_size=8, max_size=8))
@settings(max_examples=200)
def test_comments_within_a_name_stay(parts: tuple[str, str, str, str], gaps: list[str]) -> None:
    imported, before, name, after = parts
    gap = itertools.cycle(gaps)
    name = "(" + "".join(token + next(gap) for token in re.split(r"(\.)", name)) + ")"
    old = source(imported, "", before, name, after, "\n")
    assume(is_python(old))  # a backslash before a comment, or a line break outside of brackets, is a syntax error

    new = migrate_source(old, options()).source

    assert said(new) == said(old)
    assert comments(new.replace("  # in place", "")) == comments(old.replace("  # in place", ""))
    assert migrate_source(new, options()).source == new


KEYWORDS = ["learning_rate=0.1", "momentum = 0.9", "weight_decay=None", "**settings"]


@given(
    st.permutations(KEYWORDS), st.integers(0, 4), st.integers(0, 4), st.lists(space, min_size=12, max_size=12), st.booleans()
)
@settings(max_examples=200)
def test_an_argument_is_taken_out_with_its_comma(given: list[str], many: int, place: int, gaps: list[str], comma: bool) -> None:
    gap = itertools.cycle(gaps)
    listed = [next(gap) + text + next(gap) for text in given[:many]]
    old_arguments = [*listed[:place], next(gap) + "clipnorm=2.0" + next(gap), *listed[place:]]
    old = "import keras\n\nx = [keras.optimizers.SGD(" + ",".join(old_arguments) + "," * comma + ")]  # é\n"
    assume(is_python(old))

    new = migrate_source(old, options()).source

    wanted = f"x = [clipped(keras.optimizers.SGD({','.join(given[:many])}), clipnorm(2.0))]"
    short = new.replace("keras_rules.clipnorm(", "clipnorm(")
    assert said(short) == said(wanted)
    assert comments(new) == comments(old)
    assert migrate_source(new, options()).source == new


NAMES = ["weight_norm", "clip_grad_value_", "vector_to_parameters as v", "parametrize as p", "spectral_norm"]


@given(st.permutations(NAMES), st.integers(0, 5), st.integers(0, 5), st.lists(space, min_size=14, max_size=14), st.booleans())
@settings(max_examples=200)
def test_a_name_is_taken_out_of_an_import(given: list[str], many: int, place: int, gaps: list[str], comma: bool) -> None:
    gap = itertools.cycle(gaps)
    kept = given[:many]
    listed = [next(gap) + text + next(gap) for text in kept]
    names = ",".join([*listed[:place], next(gap) + "clip_grad_norm_" + next(gap), *listed[place:]])
    use = f"use({', '.join(name.split()[-1] for name in kept)})\nclip_grad_norm_(m.parameters(), 1.0)\n"
    old = f"import torch\nfrom torch.nn.utils import ({names}{',' * comma})\n{use}"
    assume(is_python(old))

    new = migrate_source(old, options()).source

    left = [node for node in ast.parse(new).body if isinstance(node, ast.ImportFrom)]
    assert [f"{a.name} as {a.asname}" if a.asname else a.name for node in left for a in node.names] == kept
    assert len(left) == bool(kept)
    if kept:
        assert comments(new) == comments(old)
    assert migrate_source(new, options()).source == new


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def said(text: str) -> str:
    """Return the source's syntax tree as text, without imports and with one name for the function."""

    class OneName(ast.NodeTransformer):
        def visit_Import(self, node: ast.Import) -> None:
            return None

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            return None

        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name("function") if node.id in ("clip_grad_norm_", "cgn") else node

        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            return ast.Name("function") if node.attr == "clip_grad_norm_" else node

    return ast.dump(OneName().visit(ast.parse(text)))


def comments(text: str) -> list[str]:
    return [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
