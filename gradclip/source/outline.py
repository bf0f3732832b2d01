"""What the text of a file says of it: its imports, and evidence. It is scanned, not parsed: most files are not migrated."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradclip.source.files import scanned
from gradclip.source.model import SourceError
from gradclip.source.notebook import code_cells

__all__ = ["File", "Imported", "outlined", "text_of"]

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\n)*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_COMMENT = re.compile(r"#[^\n]*")
_CLIPS = re.compile(r"clip|_norm", re.IGNORECASE)
_STARTS = re.compile(r"[^\w.]?\Z")
_TELLING = re.compile(r"[cC][lL][iI][pP]|[nN][oO][rR][mM]")  #: quicker than one that ignores case
_STAR = re.compile(r"^from[ \t]+([.\w]+)[ \t]+import[ \t]+\*", re.MULTILINE)
_SPARSE = re.compile(
    r"(?<!def )\b((?:\w{1,60}+\.){0,9}+(?:(?:safe_)?embedding_lookup(?:_sparse)?|embed_sequence|embedding_column"
    r"|shared_embeddings|SelectedRows))\s*\("
    r"|\b((?:\w{1,60}+\.){0,9}(?:layers|keras)\.Embedding|TokenAndPositionEmbedding)\s*\("
    r"|((?:tf|tensorflow)(?:\.compat\.v1)?\.gather)\(\s*(?:params\s*=\s*)?[\w.]*(?:embed|table|lookup|emb\b|weight|vocab)\w*"
)
#: each match of the two patterns contains one of these
_LOOK_UP = (
    *("embedding_lookup", "embed_sequence", "embedding_column", "shared_embeddings", "SelectedRows", "layers.Embedding"),
    *("keras.Embedding", "TokenAndPositionEmbedding", "tf.gather(", "tensorflow.gather(", "v1.gather("),
)
_LAYER = re.compile(r"from\s+(?:tensorflow\.)?(?:python\.)?keras[\w.]*\s+import\s+[^\n]*\bEmbedding\b")
_CLIP = re.compile(r"\b(\w+)\.(\w{0,40}(?:clip|norm)\w*)", re.IGNORECASE)
#: from the start of a name: from each of its parts a search among 20,000 would take seconds
_SETS = re.compile(r"(?<!\w)(?<!\w\.)((?!self\.clip)(?:\w+\.)+(clipnorm|clipvalue|global_clipnorm))\s*=(?!=)")


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


@dataclass(eq=False)
class File:
    """What the text of one file says."""

    path: str  #: absolute
    given: str  #: as found
    is_entry: bool  #: it can re-export the contents of its folder
    imports: tuple[Imported, ...] = ()
    sparse: str = ""
    stars: tuple[str, ...] = ()
    reads: Sequence[tuple[str, str]] = ()  #: the last name of an object -> an attribute of it that is called like a clip
    sets: Sequence[
        tuple[str, str]
    ] = ()  #: ``opt.clipnorm`` and ``clipnorm``: limits of Keras's optimizers that it sets by hand
    clips: bool = False

    def read_from(self, local: str) -> Sequence[str]:
        """The attributes that the file reads from what it imports under a name."""
        text = _code(self.given)  # a search that begins with a plain name is much quicker than one with a lookbehind
        found = re.finditer(rf"{re.escape(local)}\.(\w{{1,60}})", text)
        return tuple(dict.fromkeys(one[1] for one in found if _STARTS.match(text[max(0, one.start() - 1) : one.start()])))


def outlined(given: str) -> File:
    path = os.path.abspath(given)
    name = os.path.basename(path)
    text = _code(given)
    imports = tuple(dict.fromkeys(one for found in _IMPORT.findall(text) for one in _imports(*found)))
    entry = os.path.splitext(name)[0] == "__init__"
    stars = tuple(dict.fromkeys(_STAR.findall(text)))
    layer = "keras" in text and "Embedding" in text
    sparse = _sparse(text, name) if layer or any(word in text for word in _LOOK_UP) else ""
    clips = _CLIPS.search(text) is not None
    told = "\n".join(filter(_TELLING.search, text.splitlines())) if clips else ""
    return File(path, given, entry, imports, sparse, stars, _CLIP.findall(told), _SETS.findall(told), clips)


@functools.lru_cache(maxsize=1)  # few files are asked again, and the text of all takes much memory
def _code(given: str) -> str:
    """The text of a file without its comments."""
    return _COMMENT.sub("", text_of(given))


def _imports(module: str, names: str, modules: str) -> Iterator[Imported]:
    """The names that one statement binds."""
    for item in (names.strip("() \t\n") or modules).replace("\\", " ").split(","):
        match item.split():
            case [name] | [name, "as", _] as words:
                local = words[-1] if module or len(words) == 3 else name
                yield Imported(module, name, local) if module else Imported(name, "", local)


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
