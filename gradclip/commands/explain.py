"""The command ``gradclip explain``: its options. It imports the rest when it runs."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from gradclip.commands.common import width

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "main"]

_TO = ("gradclip", "torch", "tensorflow", "keras", "paddle", "jax")
_NARROWEST = 72  #: columns
DESCRIPTION = """\
Explain a call that clips gradients: what it computes, over which gradients, what it returns, how it
handles edge cases, and what its equivalents are in every framework. Given two calls, show with numbers
how they differ.
"""
EPILOG = """\
a call is code, the name of a framework's function, of a dialect or of gradclip itself, or a code that gradclip
migrate, lint or doctor prints; G lists the codes:
  gradclip explain "tf.clip_by_norm(g, 5.0, axes=[0])"
  gradclip explain "optax.chain(optax.clip_by_global_norm(1.0), optimizer)" --to torch
  gradclip explain gradclip.clipped
  gradclip explain GT101
  gradclip explain GM107
  gradclip explain torch.clip_grad_norm keras.clipnorm

exit status: 0; 2 for wrong usage
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.usage = "gradclip explain [options] CALL [CALL]"
    command.add_argument("call", metavar="CALL", help="the call to explain")
    command.add_argument("other", metavar="CALL", nargs="?", help="a call to compare it with")
    command.add_argument("--to", choices=_TO, default="", help="show only the equivalent in this framework")
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    from gradclip.explain import explain
    from gradclip.explain.call import CallError
    from gradclip.explain.compare import compare
    from gradclip.explain.text import comparison_text, explanation_text

    columns = width(_NARROWEST)
    document: dict[str, Any]
    if options.other is None and re.fullmatch(r"G[A-Z]?|G[MD]\w+", options.call.upper()):
        text, document = _code(options.call.upper())
    elif options.other is None:
        explanation = explain(options.call, options.to)
        text, document = explanation_text(explanation, columns), explanation.as_json()
    elif options.to:
        raise CallError("Two calls are compared, not translated.", f"--to {options.to}", "give one call.")
    else:
        comparison = compare(options.call, options.other)
        text, document = comparison_text(comparison, columns), comparison.as_json()
    print(json.dumps(document, indent=2, allow_nan=False) if options.json else text)
    return 0


def _code(code: str) -> tuple[str, dict[str, Any]]:
    """The meaning of a code of a place in code or of a finding of the doctor; a prefix lists its codes."""
    from gradclip.core.errors import more, page
    from gradclip.explain.call import CallError
    from gradclip.rounds import MISTAKES, mistake
    from gradclip.source.codes import CODES, listed

    found = {**listed(code), **{one.code: one.title for one in MISTAKES.values() if one.code.startswith(code)}}
    if len(code) < len("GM1") and found:
        return "\n".join(f"{one}  {title}" for one, title in found.items()), dict(found)
    seen = mistake(code)
    known = seen or CODES.get(code)
    if known is None:
        raise CallError("No such code.", code, "`gradclip explain G` lists them all.")
    code = known.code  # it may have had another one before
    ways = {framework: seen.advice_in(framework) for framework in seen.ways} if seen else {}
    lines = [f"{code}  {known.title}", "", known.reason, *([f"What to do: {known.advice}"] if known.advice else [])]
    lines += (f"  {framework}: {text}" for framework, text in ways.items())
    document: dict[str, Any] = {
        "code": code,
        "title": known.title,
        "reason": known.reason,
        "advice": known.advice,
        "more": more(code),
    }
    if ways:
        document["ways"] = ways
    shown = CODES.get(seen.shown_by if seen else code)
    text = shown.page() if shown else ""
    if shown and text:
        lines += ["", f"It is like {shown.code}, {shown.title}:"] if shown.code != code else []
        lines += ["", text.partition("\n\n")[2].rstrip()]  # without its title
        document["page"] = text
    elif seen and seen.told_on:
        lines += ["", f"More: {page(seen.told_on)}"]
    return "\n".join(lines), document
