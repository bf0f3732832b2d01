"""Which files are trainings that clip, and their mutants on disk."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import jax, moved, paddle, rounds, tensorflow
from benchmarks.mutants.edits import Mutant, text_with
from benchmarks.mutants.module import Module

__all__ = ["CLEAN", "Bounds", "Planted", "planted", "trainings"]

CLIPS = re.compile(r"clip_grad|clip_by_|clipnorm|clipvalue|ClipGradBy|optax\.clip|(pmean|psum)\(grad|clip_gradients")
LARGEST = 400_000  #: bytes: a larger file is data
MISTAKES = jax.MISTAKES | tensorflow.MISTAKES | paddle.MISTAKES
RIGHT = jax.RIGHT | tensorflow.RIGHT
CLEAN = "clean"  #: the folder of the file as it was


@dataclass(frozen=True)
class Planted:
    """A mutant on disk; the unchanged file stands beside it."""

    kind: str
    right: bool
    source: Path
    folder: str  #: of the mutant, and CLEAN for the unchanged one, below the folder of the source
    stem: str


@dataclass(frozen=True)
class Bounds:
    """How many mutants at most: in all, of each kind, and from how many files of each project."""

    limit: int
    each: int
    files: int


def trainings(folders: Iterable[Path]) -> dict[Path, str]:
    """Return the files that clip with their projects, each text once, in an order that no folder's size or name decides.

    A project is a folder in one of the folders: a clone.
    """
    found: dict[str, tuple[Path, str]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
                continue
            text = path.read_text(errors="replace")
            if CLIPS.search(text):
                key = hashlib.sha256(text.encode()).hexdigest()
                found.setdefault(key, (path, path.relative_to(folder).parts[0]))
    return dict(found[key] for key in sorted(found))


def mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of one file, each kind once."""
    tree = ast.parse(text)
    kinds: set[str] = set()
    for step in rounds.steps(tree):
        for made in (*rounds.mistakes(step), *moved.moves(step)):
            if made.kind not in kinds:
                kinds.add(made.kind)
                yield made
    module = Module(tree, text)
    for right, changes in ((False, MISTAKES), (True, RIGHT)):
        for kind, change in changes.items():
            if (edits := change(module)) is not None:
                yield Mutant(kind, text_with(tree, edits), right=right)


def planted(files: Mapping[Path, str], folder: Path, bounds: Bounds, say: Callable[[str], None]) -> list[Planted]:
    """Write the mutants of the files, and return them."""
    made: list[Planted] = []
    kinds: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for i, (path, project) in enumerate(files.items()):
        say(f"{i + 1} of {len(files)} files, {len(made)} mutants")
        if taken[project] >= bounds.files:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):  # an old file's escapes
                text = path.read_text(errors="replace")
                whole = [x for x in mutants(text) if kinds[x.kind] < bounds.each]
                clean = ast.unparse(ast.parse(text)) + "\n"
        except (SyntaxError, RecursionError, ValueError):
            continue
        stem = f"{i:04d}"
        for number, mutant in enumerate(whole[: bounds.limit - len(made)]):
            kinds[mutant.kind] += 1
            made.append(Planted(mutant.kind, mutant.right, path, f"{number:02d}", stem))
            _write(folder / stem / f"{number:02d}", {path.name: mutant.text, **mutant.others})
        if whole:
            taken[project] += 1
            _write(folder / stem / CLEAN, {path.name: clean})
        if len(made) >= bounds.limit:
            break
    return made


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
