"""Notebooks: the cells form one program, magics stay, and an edit changes no other byte."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradclip.migrate.codemod import migrate_source
from gradclip.source import spans
from gradclip.source.magics import Magics
from gradclip.source.model import Migrated, Options, Site, SourceError, Verdict
from gradclip.source.notebook import Notebook
from gradclip.source.runner import FileResult, Request, migrate_file

NEXT = "__joined_cell_{}__"


def notebook(*cells: Any, **metadata: Any) -> dict[str, Any]:
    """Return a notebook of code cells; each is a string, a list of lines, or a complete cell."""
    made = [
        cell if isinstance(cell, dict) else {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell}
        for cell in cells
    ]
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def written(*cells: Any, **metadata: Any) -> str:
    return json.dumps(notebook(*cells, **metadata), indent=1, ensure_ascii=False) + "\n"


def sources(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


def in_file(path: Path, text: str, migrate: Callable[[str, Options], Migrated], newline: str = "") -> FileResult:
    path.write_text(text, encoding="utf-8", newline=newline)
    return migrate_file(str(path), Request(Options(), write=True), migrate)


def changing(old: str, new: str) -> Callable[[str, Options], Migrated]:
    return lambda source, options: Migrated(source.replace(old, new))


# ---- the program --------------------------------------------------------------------------------------------------------


def test_the_cells_are_one_program() -> None:
    text = written(
        ["import torch\n", "x = 1"], {"cell_type": "markdown", "metadata": {}, "source": ["# no code"]}, "y = x\n", "z"
    )
    read = Notebook(text)
    assert read.program == f"import torch\nx = 1\n{NEXT.format(3)}\ny = x\n\n{NEXT.format(4)}\nz"
    assert ast.parse(read.program)
    assert [read.locate(line) for line in (1, 2, 4, 7)] == [(1, 1), (1, 2), (3, 1), (4, 1)]
    assert read.replaced(read.program) == text


def test_what_a_string_of_the_users_escapes_is_no_matter() -> None:
    assert "[f]" in Notebook(written(["%time f\n", "import f\n", "x = '\\d'"])).program  # warnings are errors here


def test_cells_without_code_take_no_part() -> None:
    text = written(
        "", [], "# a comment", "\n\n", "x = 1", {"cell_type": "raw", "source": "y"}, {"cell_type": "code", "source": []}
    )
    assert Notebook(text).program == f"# a comment\n{NEXT.format(5)}\nx = 1"
    assert Notebook(written()).program == ""


@pytest.mark.parametrize(
    "metadata", [{"kernelspec": {"language": "R"}}, {"language_info": {"name": "julia"}}, {"kernelspec": {"language": "Scala"}}]
)
def test_a_notebook_of_another_language_has_no_program(metadata: dict[str, Any]) -> None:
    assert Notebook(written("x <- 1", **metadata)).program == ""


def test_a_notebook_of_python_has_one_however_it_says_so() -> None:
    for metadata in ({}, {"kernelspec": {"language": "python"}}, {"language_info": {"name": "ipython3"}}, {"kernelspec": None}):
        assert Notebook(written("x = 1", **metadata)).program == "x = 1"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("", "not a notebook: Expecting value", 1),
        ('{\n"cells": [\n<<<<<<< HEAD\n', "not a notebook: Expecting value", 3),
        ("[]", "not a notebook of format 4: it has no list of cells", 0),
        ('{"worksheets": []}', "not a notebook of format 4: it has no list of cells", 0),
        ('{"cells": [{"cell_type": "code", "source": [1]}]}', "not a notebook of format 4: cell 1 has no source", 0),
        ('{"cells": [{"cell_type": "code"}]}', "not a notebook of format 4: cell 1 has no source", 0),
        (written("__joined_cell_1__"), "has names that begin with __joined_", 0),
    ],
)
def test_what_is_no_notebook(text: str, said: str, line: int) -> None:
    with pytest.raises(SourceError) as raised:
        Notebook(text)
    assert raised.value.message.startswith(said)
    assert raised.value.line == line


def test_a_program_that_has_lost_a_cell_is_refused() -> None:
    read = Notebook(written("x = 1", "y = 2"))
    with pytest.raises(SourceError, match="cell 2 cannot be found again in the rewritten program"):
        read.replaced("x = 1\ny = 2")


@pytest.mark.parametrize(
    "cells", [("a = 1", "b = 2", "c = 3"), ("a = 1\n", "b = 2\n", "c = 3\n"), ("a = 1\r\n", "b = 2\r\n", "c = 3")]
)
def test_lines_added_and_removed_stay_in_their_cells(cells: tuple[str, ...]) -> None:
    read = Notebook(written(*cells))
    ends = cells[0][5:] or "\n"
    first, second, third = cells
    assert sources(read.replaced("import x" + ends + read.program)) == ["import x" + ends + first, second, third]
    assert sources(read.replaced(read.program + "\nd = 4")) == [first, second, third + "\nd = 4"]
    assert sources(read.replaced(read.program.replace(second + "\n", ""))) == [first, "", third]
    assert sources(read.replaced(read.program.replace(first + "\n", ""))) == ["", second, third]
    assert sources(read.replaced(read.program.removesuffix(third))) == [first, second, ""]
    assert sources(read.replaced(read.program.replace(second, "b = 2\nd = 4"))) == [first, "b = 2\nd = 4", third]


# ---- magics -------------------------------------------------------------------------------------------------------------

PYTHON = "x = 7\n"
MAGICS = [
    "!pip install torch\n" + PYTHON,
    "%matplotlib inline\n" + PYTHON,
    "%load_ext autoreload\n%autoreload 2\n\n# now\n" + PYTHON,
    "%%time\n" + PYTHON,
    "%%capture out\n%cd ..\n" + PYTHON,
    PYTHON + "files = !ls *.py\nrows = %sql select 'it''s\n",
    PYTHON + "a[0], b = %time f(1)\n",
    PYTHON + "torch.clip?\n?torch.clip\ntorch.clip??\n%time?\n",
    "if x:\n    !ls {x}\n    " + PYTHON + "else:\n    %cd\n",
    PYTHON + "!echo 'one \\\n  two \\\n three'\n" + PYTHON,
    PYTHON + 's = """\n%d of !these\n"""\n!ls "\n' + PYTHON,
    PYTHON + "t = ('%d' # )\n     % 3)\n%time t\nu = 1 \\\n  % 2\n",
    PYTHON + "d = {\n  'a': '''\n!x''',\n  \"b\\\"\": [']',\n  ]}\n!ls\n",
    PYTHON + "/f 1\n,f a b\n;g a b\n",
    "!ls\r\n" + PYTHON + "!pwd\r\n",
    "y = x != 3\nz = a % b\n!ls",
    PYTHON + "# a comment \\\n!ls\ny = 1 + \\\n  2\n!ls",
]


@pytest.mark.parametrize("cell", MAGICS)
def test_a_cell_with_magics_can_be_read_and_is_put_together_again(cell: str) -> None:
    magics = Magics()
    head, body = magics.hide(cell)
    ast.parse(body)
    assert head + magics.show(body) == cell
    read = Notebook(written("import torch", cell))
    assert sources(read.replaced(read.program)) == ["import torch", cell]
    if "x = 7" in body:
        assert sources(read.replaced(read.program.replace("x = 7", "x = (8,\n9)")))[1] == cell.replace("x = 7", "x = (8,\n9)")


def test_the_magics_at_the_top_stay_in_front_of_what_is_added() -> None:
    read = Notebook(written(["%%time\n", "# why\n", "!pip install gradclip\n", "import torch\n"], "!ls"))
    assert read.program == "import torch\n"
    assert read.locate(1) == (1, 4)
    assert sources(read.replaced("import gradclip\n" + read.program))[0].split("\n")[2:4] == [
        "!pip install gradclip",
        "import gradclip",
    ]


@pytest.mark.parametrize(
    "cell", ["%%bash\nls -l | wc\n", "%%writefile x.py\nimport torch\n", "  %%html\n<b>\n", "%%js\nx => 1"]
)
def test_a_cell_of_another_language_takes_no_part(cell: str) -> None:
    assert Notebook(written(cell, "x = 1")).program == "x = 1"


def test_what_is_python_is_not_looked_at_for_magics() -> None:
    cell = "x = (a\n% b)\ny = '''\n!ls'''\n"
    assert Magics().hide(cell) == ("", cell)


def test_what_clips_inside_of_a_magic_is_mentioned(tmp_path: Path) -> None:
    cells = (
        ["%%writefile train.py\n", "import torch\n", "norm = torch.nn.utils.clip_grad_norm_(p, 1.0)  # why"],
        "import torch\n%time nn.utils.clip_grad_value_(p, 1.0)\nif x:\n    !sed s/clip_by_norm(/x/ a.py\n",
        "opt = SGD(clipnorm=1)  # this is read\n",
    )
    result = in_file(tmp_path / "n.ipynb", written(*cells), lambda source, options: Migrated(source))
    assert [(place.cell, place.site.line, place.site.column, place.site.text) for place in result.places] == [
        (1, 3, 8, "torch.nn.utils.clip_grad_norm_(p, 1.0)  # why"),
        (2, 2, 7, "nn.utils.clip_grad_value_(p, 1.0)"),
        (2, 4, 12, "clip_by_norm(/x/ a.py"),
    ]
    assert {(place.site.code, place.site.outcome) for place in result.places} == {("GM212", Verdict.MANUAL)}
    request = Request(Options(ignore=frozenset({"GM2"})))
    assert migrate_file(str(tmp_path / "n.ipynb"), request, lambda source, options: Migrated(source)).places == ()


def test_what_clips_in_a_notebook_of_magics_alone_is_mentioned(tmp_path: Path) -> None:
    text = written("%%bash\npython -c 'clip_by_norm(g, 1.0)'")
    result = in_file(tmp_path / "n.ipynb", text, lambda source, options: Migrated(source))
    assert [(place.cell, place.site.line) for place in result.places] == [(1, 2)]


@pytest.mark.parametrize("magic", ["%time torch.ones(3)\n", "x = 1\n%time torch.ones(3)", "%%timeit torch.ones(3)\nx = 1"])
def test_an_import_that_a_magic_uses_stays(magic: str, tmp_path: Path) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(p, 1.0)"
    for cells, imports in (
        (["import torch", magic, clip], "import gradclip\nimport torch"),
        (["import torch", clip, magic], "import gradclip\nimport torch"),
        (["import torch", clip, "%time 1"], "import gradclip"),
    ):
        result = in_file(tmp_path / "n.ipynb", written(*cells), migrate_source)
        assert (result.error, result.written) == ("", True)
        assert [place.site.outcome for place in result.places] == [Verdict.REWRITTEN]
        expected = [cell.replace("torch.nn.utils", "gradclip") for cell in cells[1:]]
        assert sources((tmp_path / "n.ipynb").read_text()) == [imports, *expected]


def test_a_clip_that_is_imported_for_a_magic_is_mentioned_once(tmp_path: Path) -> None:
    cells = ["from torch.nn.utils import clip_grad_norm_", "clip_grad_norm_(p, 1.0)", "%time clip_grad_norm_(p, 1.0)"]
    result = in_file(tmp_path / "n.ipynb", written(*cells), migrate_source)
    assert [(place.cell, place.site.code) for place in result.places] == [(2, "GT101"), (3, "GM212")]
    assert sources((tmp_path / "n.ipynb").read_text()) == [f"import gradclip\n{cells[0]}", "gradclip." + cells[1], cells[2]]


# ---- bytes --------------------------------------------------------------------------------------------------------------

FORMS = {
    "as nbformat writes it": lambda cells: json.dumps(notebook(*cells), indent=1, ensure_ascii=False, sort_keys=True) + "\n",
    "escaped": lambda cells: json.dumps(notebook(*cells), indent=4),
    "on one line": lambda cells: json.dumps(notebook(*cells), separators=(",", ":")),
    "with tabs": lambda cells: json.dumps(notebook(*cells), indent="\t", ensure_ascii=False) + "\n\n",
    "with other line ends": lambda cells: json.dumps(notebook(*cells), indent=2).replace("\n", "\r\n"),
}
CELLS = [
    ["import torch\n", "é = 'caf\u00e9 \U0001f600 \\u00e9'  # \"x\"\n", "clip(a)"],
    "s = '\t/\\\\'\nclip(b)\nend = 1\n",
    {"cell_type": "markdown", "metadata": {"a": [1.50, -0.0, 1e3, True, None]}, "source": ["clip(c)"]},
    {"source": ["clip(d)"], "outputs": [{"text": '"source": ["clip(e)"]}] \\'}], "cell_type": "code"},
]


@pytest.mark.parametrize("form", FORMS)
def test_only_the_changed_code_changes(form: str, tmp_path: Path) -> None:
    text = FORMS[form](CELLS)
    result = in_file(tmp_path / "n.ipynb", text, changing("clip(", "keep("))
    assert (result.error, result.written) == ("", True)
    expected = text
    for name in "abd":
        expected = expected.replace(f"clip({name})", f"keep({name})")
    assert (tmp_path / "n.ipynb").read_bytes().decode() == expected


@pytest.mark.parametrize("form", FORMS)
def test_new_lines_are_written_as_the_others_are(form: str, tmp_path: Path) -> None:
    text = FORMS[form](CELLS)
    result = in_file(tmp_path / "n.ipynb", text, changing("import torch\n", "import torch\nimport gradclip  # ö\n"))
    assert (result.error, result.written) == ("", True)
    cells = [["import torch\n", "import gradclip  # ö\n", *CELLS[0][1:]], *CELLS[1:]]  # type: ignore[misc,list-item]
    assert json.loads((tmp_path / "n.ipynb").read_bytes()) == notebook(*cells)
    if form != "on one line":
        assert (tmp_path / "n.ipynb").read_bytes().decode() == FORMS[form](cells)


def test_escapes_stay_as_they_are_in_a_line_that_changes() -> None:
    text = r'{"cells": [{"cell_type": "code", "source": "x = \"\u00e9é\ud83d\ude00\/\t\", clip"}]}'
    read = Notebook(text)
    assert read.program == 'x = "éé😀/\t", clip'
    assert read.replaced(read.program.replace("clip", "keep")) == text.replace("clip", "keep")
    assert read.replaced("# ü\n" + read.program) == text.replace('"x =', r'"# ü\nx =')


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    in_file(tmp_path / "n.ipynb", "\ufeff" + written("clip(a)"), changing("clip", "keep"))
    assert (tmp_path / "n.ipynb").read_bytes() == ("\ufeff" + written("keep(a)")).encode()


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    text = '{"cells": [], "cells": [{"cell_type": "code", "source": "x", "source": "y"}]}'
    read = Notebook(text)
    assert read.program == "y"
    assert read.replaced("z") == text.replace('"y"', '"z"')


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    values,
    st.lists(st.text(max_size=8).map(lambda text: text.replace("\n", "")), min_size=1),
    st.text(),
    st.randoms(use_true_random=False),
)
def test_any_document_keeps_what_is_not_replaced(value: Any, lines: list[str], new: str, rng: random.Random) -> None:
    old = [f"{line}\n" for line in lines]
    escaped, indent = rng.random() < 0.5, rng.choice([None, 0, 2, "\t"])
    document = {"a": value, "b": [value, {"source": old, "also": "x"}], "c": value}
    text = json.dumps(document, ensure_ascii=escaped, indent=indent)
    assert spans.replaced(text, [(("b", 1, "source"), "".join(old))]) == text
    again = spans.replaced(text, [(("b", 1, "source"), new), (("b", 1, "also"), new)])
    found = json.loads(again)
    assert "".join(found["b"][1].pop("source")) == new
    assert found["b"][1].pop("also") == new
    del document["b"][1]["source"], document["b"][1]["also"]
    assert found == document


# ---- through the runner -------------------------------------------------------------------------------------------------


def test_sites_are_placed_in_their_cells(tmp_path: Path) -> None:
    def migrate(source: str, options: Options) -> Migrated:
        line = source.splitlines().index("    clip(x)") + 1
        return Migrated(source, (Site(line, 5, "GT101", Verdict.MANUAL, "clip(x)", "why"),))

    result = in_file(tmp_path / "n.ipynb", written("import torch", "# two", ["!ls\n", "if x:\n", "    clip(x)"]), migrate)
    (place,) = result.places
    assert (place.cell, place.site.line, place.site.column) == (3, 3, 5)


CLIP = "torch.nn.utils.clip_grad_norm_(p, 1.0)"


def test_a_notebook_without_a_cell_that_parses_is_an_error(tmp_path: Path) -> None:
    result = in_file(tmp_path / "n.ipynb", written("%cd ..\nx = = clip"), migrate_source)
    assert (result.error, result.cell, result.line, result.column) == ("does not parse: invalid syntax", 1, 2, 5)


@pytest.mark.parametrize(
    "broken", ["lr = # TODO", "print 'x'", "x = (", "  x = 1\n y = 2", "def f():\n", "x = 1\n  y = 2", "return =", "$ ls"]
)
def test_a_cell_that_does_not_parse_loses_only_itself(broken: str, tmp_path: Path) -> None:
    result = in_file(tmp_path / "n.ipynb", written(broken, "import torch", broken, CLIP), migrate_source)
    assert (result.error, result.written) == ("", True)
    assert sources((tmp_path / "n.ipynb").read_text()) == [
        broken,
        "import gradclip",
        broken,
        CLIP.replace("torch.nn.utils", "gradclip"),
    ]


def test_a_clip_and_an_import_in_a_cell_that_does_not_parse(tmp_path: Path) -> None:
    result = in_file(tmp_path / "n.ipynb", written("import torch", CLIP, f"x = = torch\n{CLIP}"), migrate_source)
    assert [(place.cell, place.site.line, place.site.code) for place in result.places] == [(2, 1, "GT101"), (3, 2, "GM212")]
    assert result.places[1].site.reason == "Its cell does not parse, so the command does not read it."
    assert sources((tmp_path / "n.ipynb").read_text())[0] == "import gradclip\nimport torch"


@pytest.mark.parametrize("first", ["  x = 1\n  y = 2", "\tx = 1\n\n\t# why\n\ty = 2\n"])
def test_an_indented_cell_is_read(first: str, tmp_path: Path) -> None:
    cells = (first, "import torch", f"   {CLIP}\n   z = 1", first)
    read = Notebook(written(*cells))
    assert read.locate(2) == (1, 1)
    assert sources(read.replaced(read.program)) == list(cells)
    result = in_file(tmp_path / "n.ipynb", written(*cells), migrate_source)
    assert [(place.cell, place.site.line, place.site.outcome) for place in result.places] == [(3, 1, Verdict.REWRITTEN)]
    after = sources((tmp_path / "n.ipynb").read_text())
    assert "".join(after) == "".join(cells).replace("import torch", "import gradclip").replace("torch.nn.utils", "gradclip")


def test_await_outside_of_a_function_is_allowed(tmp_path: Path) -> None:
    result = in_file(tmp_path / "n.ipynb", written("x = await f()\nclip"), changing("clip", "keep"))
    assert (result.error, result.changed) == ("", True)


def test_a_rewrite_that_does_not_compile_is_not_written(tmp_path: Path) -> None:
    result = in_file(tmp_path / "n.ipynb", written("clip(a)"), changing("clip(", "clip(("))
    assert "does not compile" in result.error
    assert (tmp_path / "n.ipynb").read_text() == written("clip(a)")
