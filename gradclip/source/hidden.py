"""What of a source may concern gradients, by its words: reading the rest takes time for nothing.

The bodies of functions without these words are hidden from LibCST, which parses slowly. The replacement has the same length in
bytes, so every position stays the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from gradclip.source.parsing import parsed
from gradclip.source.reading.program import last

__all__ = ["hide", "may_clip", "may_mask", "names_clip", "trains"]

#: a gradient that is called as in a formula: ``dW *= k``; it begins with a letter, as others below: a word boundary first
#: takes a search ten times as long
_DERIVED = r"d(?<=\bd)(?:params|theta|[WUV])\w*(?:\[\w+\])? *[*/]="

#: text that a check may search for anywhere in a file, not only around a clip; a body that contains it stays
_TELLING = re.compile(
    rb"[cC]lip|CLIP|clamp|_norm|norm\w{0,4}\(|grad|minimum|maximum|unscale|\.scale\(|scaled?_loss|backward|minimize|mul_|div_|ccelerat"
    rb"|mbed|gather|IndexedSlices|SelectedRows|distributed_opt|shard|FSDP|eepspeed|lossal|opacus|fairscale|fleet"
    rb"|\b(global|nonlocal|exec|eval|getattr|locals|globals|vars)\b"
    rb"|import [^\n]*(torch|tensorflow|paddle|keras|optax|jax|numpy)|from +(torch|tensorflow|paddle|keras|optax|jax)"
    rb"|fit_generator|Convolution2D|np_utils|nb_epoch|contrib|fluid|tf\.(train|Session)"
    rb"|placeholder|get_variable|tie_|weight *="
    rb"|optim|[sS]caler|strategy|no_sync|Trainer|TrainingArguments"
    rb"|" + _DERIVED.encode()
)
#: in lower case; each is a name of a clip, or a part of one
_CLIPS = (
    "clip",
    "clamp",
    "agc(",
    "dpsgd",
    "differentially_private",
    "global_norm",
    "total_norm",
    "grad_norm",
    "tree_norm",
)
#: what bounds some elements: a minimum of a maximum, the reverse, ``g[norms > limit] *= limit / norms``
_ELEMENTS = re.compile(
    r"(?s)m(?<=\bm)(?:in(?:imum)?\(.{0,200}?\bmax(?:imum)?\(|ax(?:imum)?\(.{0,200}?\bmin(?:imum)?\()"
    r"|\[[^\]\n]*[<>][^\]\n]*\] *[*/]="
)
_EXTREMES = {"min": "min", "minimum": "min", "max": "max", "maximum": "max"}
#: in lower case: names that a clip by hand has
_BY_HAND = re.compile(
    r"clip(ped(_?norm)?\b|p\w*?grad|_?(grad|norm|coef|val|fac|scal|rat|by))|(?<!\w)(?>\w*?grad)\w*clip|(global|total|grad|tree)_norm|dpsgd"
)
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[\w.]+")  #: a path or an option is none: "open-clip/model"
_PLAIN = frozenset({"clip", "clamp"})  #: words of English too: a string with one names a function if something looks it up
_CALLED = re.compile(r"\w+(?=\s*\()")
#: in lower case: a bound or a norm, which may be of gradients
_BOUNDS = ("_norm", "norm(", "/ norm", "/norm", "/ (norm", "/(norm", "minimum", ".mul_(")
#: a norm, or a bound, without one of the words
_ROOT = re.compile(
    r"r?sqrt|\*\*=? *\(?(0?\.5|1 ?/ ?2)|abs\(\)\.max\(|max\((\w+\.)*abs\(|amax\(|l2_loss|l2norm|normalize\(|vdot\("
    r"|max\((\w+\.)*min\(|min\((\w+\.)*max\("
)
_GRADIENT = re.compile(r"g(?:rad|norm|(?<=\bg)(?:s|vs)?\b)|G(?:rad|RAD)|update|d(?:params|theta|(?<=\bd)(?:[A-Z]|[wb]\b))")
#: a likely gradient is compared
_COMPARED = re.compile(r"[gG](?:rads?|(?<=\bg))(?=\W)[\w.()\[\]\s]{0,40}(?:[<>]|(?<=\.)g[te]\()")
#: an index compares, perhaps with the array that it is an index of, as in ``g[g > limit] = limit``
_INDEX = re.compile(r"\[[^\]\n]*[<>][^\]\n]*\] *=")
_OWN_INDEX = re.compile(r"\b(\w+)\[[^\]\n]{0,20}\b\1\b[^\]\n]*[<>][^\]\n]*\] *=")
#: what a training step has: gradients that are made or used, or the functions that do
_TRAINS = re.compile(
    r"backward\(|\.step\(|[oO]ptim|optax|minimize\(|value_and_grad\(|g(?<=\bg)rad(?:s?\b|ients?\()|GradientTape"
    r"|apply_(?:gradients|updates)"
)
_SHORT = 3  # lines: hiding a shorter body saves too little
Function = ast.FunctionDef | ast.AsyncFunctionDef


def may_clip(source: str, *, lint: bool) -> bool:
    """Whether a source has a word of a clip; for the linter also one that trains, since it may clip in another file."""
    lower = source.lower()
    if any(word in lower for word in _CLIPS) or "optax" in lower or (lint and ".backward(" in lower):
        return True
    is_bound = any(word in lower for word in _BOUNDS)
    if not lint and may_mask(source):
        return True
    return bool(is_bound and _GRADIENT.search(source)) or bool(
        ("grad" in lower or re.search(_DERIVED, source)) and _ROOT.search(lower)
    )


def trains(text: str) -> bool:
    """Whether a text has a word of a training step: its clip may stand in another file, or under a name of its own."""
    return _TRAINS.search(text) is not None


def may_mask(text: str) -> bool:
    """Whether a text with a word of gradients may compare their elements with a limit."""
    if "grad" not in text and "Grad" not in text:
        return False
    return bool(_COMPARED.search(text)) or bool(_INDEX.search(text) and _OWN_INDEX.search(text))


def names_clip(source: str, names: Collection[str]) -> bool:
    """Whether the code of a source that may clip names a clip, or bounds each element. All others are written by hand.

    Args:
        source: Python 3.
        names: the names of clips, and of settings that clip.

    Raises:
        SourceError: if the source is not Python 3.
    """
    lower = source.lower()
    # `from optax.tree import norm`, and a norm that is called total
    is_called = ("optax" in lower and "norm" in lower) or (".grad" in lower and "total" in lower)
    if not (is_called or any(word in lower for word in _CLIPS) or _ELEMENTS.search(lower)):
        return False
    written, bounds = _read(parsed(source), "getattr" in source)
    text = "\n".join(written)
    is_called = ("optax" in lower and "norm" in written) or {"grad", "total"} <= written
    return bounds or is_called or not written.isdisjoint(names) or _BY_HAND.search(text.lower()) is not None


def _read(tree: ast.Module, looks_up: bool) -> tuple[set[str], bool]:
    """The names in the code and in its strings, but not in its comments; and whether something bounds some elements."""
    words: set[str] = set()
    bounds = False
    for node in _nodes(tree):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            words.add(node.arg)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                words.update(_named_in(node.value, looks_up))
        elif isinstance(node, ast.alias):
            words.update(node.name.split("."))
        elif isinstance(node, (ast.FunctionDef, ast.arg)):
            words.add(node.name if isinstance(node, ast.FunctionDef) else node.arg)
        elif isinstance(node, ast.Call):
            bounds = bounds or _is_nested(node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            bounds = bounds or any(isinstance(one, ast.Compare) for one in ast.walk(node.target.slice))
    return words, bounds


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that has fields, quicker than ``ast.walk``."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if node.__class__ is ast.Name or node.__class__ is ast.Constant:
            continue
        for value in vars(node).values():
            if value.__class__ is list:
                stack += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                stack.append(value)


def _named_in(text: str, looks_up: bool) -> Collection[str]:
    """What a string names: the words of a name or an option, and what code in it calls; nothing for those of a sentence."""
    if " " in text:
        return _CALLED.findall(text)
    if text in _PLAIN:
        return (text,) if looks_up else ()
    return _WORD.findall(text) if _NAME.fullmatch(text) else {*_WORD.findall(text)} - _PLAIN


def _is_nested(node: ast.Call) -> bool:
    """Whether it is a minimum of a maximum, or the reverse."""
    outer = _EXTREMES.get(last(node.func), "")
    return bool(outer) and any(isinstance(one, ast.Call) and _EXTREMES.get(last(one.func), outer) != outer for one in node.args)


def hide(tree: ast.Module, data: bytes, lines: Sequence[int], shown: Sequence[int]) -> tuple[bytes, list[Function]]:
    """A source without the bodies that no check reads.

    Args:
        tree: the source, parsed by Python.
        data: the bytes of the source.
        lines: the offset of each line.
        shown: the numbers of lines whose functions stay.

    Returns:
        A source of the same length, and the functions whose bodies it lacks.
    """
    parts: list[bytes] = []
    hidden = []
    position = 0
    for function in _functions(tree.body):
        first = function.body[0]
        decorators = first.decorator_list if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else []
        line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
        last = function.end_lineno or line
        start = lines[line - 1]
        end = lines[last] if last < len(lines) else len(data)
        body = data[start:end]
        space = len(body) - len(body.lstrip(b" \t"))
        own_lines = line > function.lineno and not data[start : start + first.col_offset].strip()
        stays = last - line + 1 < _SHORT or not own_lines or any(line <= one <= last for one in shown)
        if stays or _TELLING.search(data, lines[function.lineno - 1], end):
            continue
        parts += [data[position:start], body[:space], b"0", _blank(body[space + 1 :])]
        position = end
        hidden.append(function)
    return b"".join([*parts, data[position:]]), hidden


def _functions(body: Sequence[ast.stmt]) -> Iterator[Function]:
    """The functions of a module and its classes, without nested functions."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body)


def _blank(text: bytes) -> bytes:
    """Comments of the same length in place of lines."""
    return re.sub(rb"[^\r\n]", b"#", text)
