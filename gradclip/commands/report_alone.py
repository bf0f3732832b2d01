"""The second part of ``gradclip demo`` where NumPy is alone. Needs rich."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from gradclip.commands import demo_alone
from gradclip.errors import counted

__all__ = ["show"]


def show(console: Console) -> None:
    """Print the three meanings of one limit, and what ``gradclip lint`` finds in a program."""
    console.print(Text("The same limit, three meanings", "bold"))
    _line(console, f"Two gradients, {_numbers(demo_alone.gradients())}, clipped at {demo_alone.LIMIT}:")
    for meaning in demo_alone.meanings():
        console.print()
        _line(console, meaning.rule)
        _line(console, _numbers(meaning.clipped), 4)
    console.print()
    found = demo_alone.findings()
    if found is None:
        _line(console, "To see what gradclip lint finds: python -m pip install libcst")
        return
    console.print(Text(f"{counted(len(found), 'finding')} of gradclip lint", "bold"))
    for number, line in enumerate(demo_alone.PROGRAM.splitlines(), 1):
        _line(console, f"{number:2}  {line}".rstrip())
    for one in found:
        console.print()
        _line(console, f"line {one.line}: {one.code} {one.reason}")


def _numbers(tensors: list[list[float]]) -> str:
    return ", ".join("[" + ", ".join(f"{x:.3g}" for x in numbers) + "]" for numbers in tensors)


def _line(console: Console, text: str, indent: int = 0) -> None:
    console.print(Text(" " * indent + text))
