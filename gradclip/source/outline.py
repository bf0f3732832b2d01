"""What the text of a file says of it: its imports, and evidence. It is scanned, not parsed: most files are not migrated."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gradclip.source.files import scanned
from gradclip.source.model import SourceError
from gradclip.source.notebook import code_cells

__all__ = ["File", "Imported", "outlined", "text_of"]

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\n)*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_COMMENT = re.compile(r"#[^\n]*")
_CLIPS = re.compile(r"clip|_norm", re.IGNORECASE)
_STAR = re.compile(r"^from[ \t]+([.\w]+)[ \t]+import[ \t]+\*", re.MULTILINE)
_SPARSE = re.compile(
    r"(?<!def )\b((?:\w{1,60}+\.){0,9}+(?:(?:safe_)?embedding_lookup(?:_sparse)?|embed_sequence|embedding_column"
    r"|shared_embeddings|SelectedRows))\s*\("
    r"|\b((?:\w{1,60}+\.){0,9}(?:layers|keras)\.Embedding|TokenAndPositionEmbedding)\s*\("
    r"|((?:tf|tensorflow)(?:\.compat\.v1)?\.gather)\(\s*(?:params\s*=\s*)?[\w.]*(?:embed|table|lookup|emb\b|weight|vocab)\w*"
)
_LOOK_UP = ("mbed", "gather", "SelectedRows")  #: each match of the two patterns contains one of these
_LAYER = re.compile(r"from\s+(?:tensorflow\.)?(?:python\.)?keras[\w.]*\s+import\s+[^\n]*\bEmbedding\b")
_CLIP = re.compile(r"\b(\w+)\.(\w{0,40}(?:clip|norm)\w*)", re.IGNORECASE)
#: from the start of a name: from each of its parts a search among 20,000 would take seconds
_SETS = re.compile(r"(?<!\w)(?<!\w\.)((?!self\.clip)(?:\w+\.)+(clipnorm|clipvalue|global_clipnorm))\s*=(?!=)")
_ATTRIBUTE = re.compile(r"\b[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,6}")


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that an import statement binds."""

    module: str  #: as written, with the dots of a relative import
    name: str  #: the name in that module; "" for the module itself, "*" for all
    local: str  #: the name here

    @property
    def last(self) -> str:
        """The last name of the module; a dot for the package itself."""
        return self.module.rpartition(".")[2] or "."


@dataclass(slots=True, eq=False)
class File:
    """What the text of one file says."""

    path: str  #: absolute
    given: str  #: as found
    is_entry: bool  #: it can re-export the contents of its folder
    imports: tuple[Imported, ...] = ()
    attributes: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  #: an imported module's local name -> the attributes that are read from it
    sparse: str = ""
    stars: tuple[str, ...] = ()
    reads: Sequence[tuple[str, str]] = ()  #: the last name of an object -> an attribute of it that is called like a clip
    sets: Sequence[
        tuple[str, str]
    ] = ()  #: ``opt.clipnorm`` and ``clipnorm``: limits of Keras's optimizers that it sets by hand
    clips: bool = False


def outlined(given: str) -> File:
    path = os.path.abspath(given)
    name = os.path.basename(path)
    text = _COMMENT.sub("", text_of(given))
    imports = tuple(dict.fromkeys(one for found in _IMPORT.findall(text) for one in _imports(*found)))
    entry = os.path.splitext(name)[0] == "__init__"
    stars = tuple(dict.fromkeys(_STAR.findall(text)))
    sparse = _sparse(text, name) if any(word in text for word in _LOOK_UP) else ""
    clips = _CLIPS.search(text) is not None
    reads = _CLIP.findall(text) if clips else ()
    sets = _SETS.findall(text) if clips else ()
    return File(path, given, entry, imports, _attributes(text, imports), sparse, stars, reads, sets, clips)


def _imports(module: str, names: str, modules: str) -> Iterator[Imported]:
    """The names that one statement binds."""
    for item in (names.strip("() \t\n") or modules).replace("\\", " ").split(","):
        match item.split():
            case [name] | [name, "as", _] as words:
                local = words[-1] if module or len(words) == 3 else name
                yield Imported(module, name, local) if module else Imported(name, "", local)


def _attributes(text: str, imports: Iterable[Imported]) -> Mapping[str, Sequence[str]]:
    """What a text reads from the modules that it imports."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    locals_ = {one.local for one in imports}
    for match in _ATTRIBUTE.finditer(text):
        parts = match[0].split(".")
        for count in range(1, len(parts)):
            if (local := ".".join(parts[:count])) in locals_:
                found[local][parts[count]] = None
    return {local: tuple(names) for local, names in found.items()}


def text_of(path: str) -> str:
    text = scanned(path)
    if not path.endswith(".ipynb"):
        return text
    try:
        return "\n".join(source for _, source in code_cells(text))
    except SourceError:
        return ""


def _sparse(text: str, name: str) -> str:
    match = _SPARSE.search(text)
    if match is None:
        return f"`Embedding` in {name}" if _LAYER.search(text) else ""
    if match[2] is not None and "keras" not in text and "tensorflow" not in text:
        return ""
    return f"`{match[1] or match[2] or match[3]}` in {name}"
