"""The codemod beyond single patterns: what it reads, refuses, skips on request, and imports."""

from __future__ import annotations

import subprocess
import sys
import warnings

import migrate_codes
import pytest
from launched import TIME_LIMIT
from migrate.codemods import manual, migrate, options, rewritten

from gradclip.commands import cli
from gradclip.core.errors import more
from gradclip.migrate.codemod import migrate_source
from gradclip.natives import BY_NAME, NATIVES, Kind
from gradclip.rounds.seen_by_a_run import SEEN_BY_A_RUN
from gradclip.source import codes
from gradclip.source.model import SourceError

FRAMEWORKS = ("numpy", "torch", "tensorflow", "paddle", "jax", "optax", "keras")
CALL = "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"


# ---- reading -------------------------------------------------------------------------------------------------------------


def test_a_source_that_speaks_of_no_clip_is_returned_as_it_is() -> None:
    source = "this is not Python at all"
    assert migrate_source(source, options()).source is source


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("print 'clip'\n", "It is not Python 3: Missing parentheses in call to 'print'", 1),
        ("x = 1\nif clip\n    pass\n", "It is not Python 3", 2),
        ("clip = 1\0", "It is not Python 3: source code string cannot contain null bytes", 0),
        ("clip = " + "(" * 5000 + ")" * 5000, "nested too deeply", 1),
        ("clip = " + "-" * 50000 + "1", "nested too deeply", 0),
        ("clip = " + "+".join("1" * 50000), "nested too deeply", 0),
        ("clip = '\udc80'\n", "surrogates", 0),
        (CALL.replace("\n", "\r"), "carriage return", 0),
    ],
)
def test_what_cannot_be_read_is_one_error(source: str, message: str, line: int) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        migrate_source(source, options())
    assert caught.value.line == line
    assert "\n" not in caught.value.message


def test_a_byte_order_mark_stays_first() -> None:
    assert migrate("\ufeff" + CALL).source.startswith("\ufeffimport gradclip\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_new_lines_end_as_the_others_do(newline: str) -> None:
    source = (
        "import torch\nfrom x import y\n\n# c\ntorch.nn.utils.clip_grad_norm_(y, 0)\ntorch.nn.utils.clip_grad_norm_(y, 1)\n"
    )
    migrated = migrate(source.replace("\n", newline), annotate=True)
    assert migrated.source.count(newline) == source.count("\n") + 2  # one for an import, one for a comment
    assert "\n" not in migrated.source.replace(newline, "")


def test_the_place_of_a_site_counts_characters() -> None:
    (site,) = migrate("import torch\nif 'ü': é = 1; torch.nn.utils.clip_grad_norm_(p, 1.0)\n").sites
    assert (site.line, site.column) == (2, 16)
    assert site.text == "torch.nn.utils.clip_grad_norm_(p, 1.0)"


def test_what_strings_escape_is_no_matter() -> None:
    source = "from torch.nn.utils import clip_grad_norm_\nclip_grad_norm_(p, 1.0)\nx = {'\\d': re.compile('\\s', clip='\\w')}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        migrated = migrate_source(source, options())
    assert migrated.source == source.replace("from torch.nn.utils import clip_grad_norm_", "import gradclip").replace(
        "\nclip", "\ngradclip.clip"
    )


# ---- names ---------------------------------------------------------------------------------------------------------------

BINDINGS = {
    "a parameter of a lambda": "f = lambda torch: {}\n",
    "a variable of a comprehension": "[{} for torch in y]\n",
    "a loop": "for torch in y:\n    {}\n",
    "a with": "with x() as torch:\n    {}\n",
    "an except": "try:\n    pass\nexcept E as torch:\n    {}\n",
    "a walrus": "if (torch := load()):\n    {}\n",
    "a match": "match x:\n    case torch:\n        {}\n",
    "a match of the rest": "match x:\n    case {{**torch}}:\n        {}\n",
    "a match of a star": "match x:\n    case [*torch]:\n        {}\n",
    "a global": "def f():\n    global torch\n    torch = 1\n{}\n",
    "a class": "class torch: ...\n{}\n",
    "an assignment after it": "{}\ntorch = load()\n",
    "another import": "from other import torch\n{}\n",
    "an augmented assignment": "torch += 1\n{}\n",
    "a tuple": "torch, x = load()\n{}\n",
}


@pytest.mark.parametrize("name", BINDINGS)
def test_a_name_that_something_else_binds_is_not_rewritten(name: str) -> None:
    migrated = migrate("import torch\n" + BINDINGS[name].format("torch.nn.utils.clip_grad_norm_(p, 1.0)"))
    assert rewritten(migrated) == []
    assert len(manual(migrated)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntry:\n    import apex\nexcept ImportError:\n    apex = None\ntorch.nn.utils.clip_grad_norm_(p, 1)\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nif torch:\n    torch.nn.utils.clip_grad_norm_(p, 1)\n",
        "import torch.nn\nimport torch.optim\nprint(torch.optim)\ntorch.nn.utils.clip_grad_norm_(p, 1)\n",
        "if x:\n    import torch\nelse:\n    import torch\ntorch.nn.utils.clip_grad_norm_(p, 1)\n",
        "import torch\nclass A:\n    torch = 1\n    def f(self):\n        torch.nn.utils.clip_grad_norm_(p, 1)\n",
        "import torch\ndef g(torch): ...\ntorch.nn.utils.clip_grad_norm_(p, 1)\n",
        "import torch\nutils = torch.nn.utils\nutils.clip_grad_norm_(p, 1)\n",
    ],
)
def test_a_name_that_can_only_be_one_function_is_rewritten(source: str) -> None:
    assert rewritten(migrate(source)) == ["GT101"]


@pytest.mark.parametrize(
    "api", [api for api in NATIVES if api.kind not in (Kind.KEYWORD, Kind.GLOBAL_STATE)], ids=lambda api: api.code
)
def test_every_name_of_every_function_is_found(api: object) -> None:
    for name in api.names:  # type: ignore[attr-defined]
        module, _, function = name.rpartition(".")
        for source in (f"import {module}\nx = {name}(**a)\n", f"from {module} import {function} as f\nx = f(**a)\n"):
            assert manual(migrate(source)) == ["GM203"], name


@pytest.mark.parametrize("name", [name for name in BY_NAME if "(" in name and "keras" not in name])
def test_every_keyword_is_found(name: str) -> None:
    call = name.removesuffix(")")
    module = call.partition("(")[0].rpartition(".")[0]
    assert len(manual(migrate(f"import {module}\nx = {call}limit)\n"))) == 1


def test_a_name_means_what_its_own_function_imports() -> None:
    call = "    t.nn.utils.clip_grad_norm_(p, 1.0)\n"
    migrated = migrate(f"def f():\n    import torch as t\n{call}\ndef g():\n    import other as t\n{call}")
    assert [site.code for site in migrated.sites] == ["GT101", "GM207"]


def test_a_star_import_before_the_import_of_a_name_does_not_bind_it() -> None:
    names = "from torch.nn.utils import clip_grad_norm_\n", "from helpers import *\n"
    call = "clip_grad_norm_(p, 1.0)\n"
    assert manual(migrate("".join(names) + call)) == ["GM202"]
    assert rewritten(migrate("".join(reversed(names)) + call)) == ["GT101"]


# ---- imports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations; import torch; torch.nn.utils.clip_grad_norm_(p, 1)\n",
        '"""Docstring."""; import torch; torch.nn.utils.clip_grad_norm_(p, 1)\n',
        '"""Docstring."""\nfrom __future__ import annotations\nimport torch\ntorch.nn.utils.clip_grad_norm_(p, 1)\n',
        "from __future__ import annotations\ndef f():\n    import torch\n    torch.nn.utils.clip_grad_norm_(p, 1)\n",
        "def f():\n    from torch.nn.utils import clip_grad_norm_\n    clip_grad_norm_(p, 1)\n",
        "def f():\n    import optax; return optax.clip(1.0)\n",
        "if x: import optax; tx = optax.clip(1.0)\n",
        "try:\n    import optax\nexcept ImportError:\n    pass\ntx = optax.clip(1.0)\n",
    ],
)
def test_imports_come_where_python_takes_them(source: str) -> None:
    migrated = migrate(source)  # migrate checks that the result compiles
    assert len(rewritten(migrated)) == 1
    names = {"f": object, "p": [], "x": False, "__name__": "migrated"}
    if "optax" not in source:
        exec(compile(migrated.source.replace("import torch", "pass"), "migrated", "exec"), names)


# ---- code that must not change -------------------------------------------------------------------------------------------


def test_only_what_is_selected_is_touched() -> None:
    source = CALL + "torch.nn.utils.clip_grad_value_(p, 1.0)\n"
    assert rewritten(migrate(source, select=["GT103"])) == ["GT103"]
    assert rewritten(migrate(source, select=["GT"])) == ["GT101", "GT103"]
    assert rewritten(migrate(source, ignore=["GT101"])) == ["GT103"]
    assert migrate(source, select=["GM"]).sites == ()
    assert rewritten(migrate(source, sources=["tensorflow"])) == []


def test_a_trap_of_a_selected_function_is_told() -> None:
    assert manual(migrate("import torch\ntorch.nn.utils.clip_grad_norm_(p, 0)\n", select=["GT101"])) == ["GM114"]


def test_a_comment_is_written_once() -> None:
    source = "import torch\nif x:\n    torch.nn.utils.clip_grad_norm_(p, 0)\n"
    once = migrate(source, annotate=True).source
    assert once.splitlines()[2].startswith("    # gradclip: MANUAL GM114 ")
    assert migrate(once, annotate=True).source == once
    twice = "import torch\ntorch.nn.utils.clip_grad_norm_(p, 0); torch.nn.utils.clip_grad_norm_(q, 0)\n"
    assert migrate(twice, annotate=True).source.count("# gradclip") == 1
    assert migrate(source).source == source


KINDS = {one.code: one for one in SEEN_BY_A_RUN}


# ---- the documentation ---------------------------------------------------------------------------------------------------


def test_the_page_of_the_codes_has_each_of_them() -> None:
    text = migrate_codes.markdown()
    assert all(f"\n| {code} | " in text for code in codes.CODES)


@pytest.mark.parametrize("code", [*codes.CODES, *KINDS, *(api.code for api in NATIVES)])
def test_every_code_is_explained_by_the_command_that_a_message_names(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = codes.CODES.get(code) or KINDS.get(code)
    assert cli.main(more(code).split()[1:]) == 0
    assert (known.reason if known is not None else "") in capsys.readouterr().out


def test_a_prefix_lists_the_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "g"]) == 0
    every = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(every) == sorted([*codes.CODES, *KINDS, *(api.code for api in NATIVES)])
    assert cli.main(["explain", "GD"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*KINDS]


# ---- imported names ------------------------------------------------------------------------------------------------------


def modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    return set(done.stdout.split())


def test_migrating_imports_no_framework_and_no_backend() -> None:
    source = CALL + "import optax, keras\noptax.clip(1.0)\nkeras.optimizers.SGD(clipnorm=1.0)\n"
    code = "from gradclip.migrate.codemod import migrate_source\nfrom gradclip.source.model import Options\n"
    code += f"migrated = migrate_source({source!r}, Options()).source\nassert 'gradclip.backends.keras' in migrated, migrated"
    modules = modules_after(code)
    assert not modules & set(FRAMEWORKS)
    assert not [name for name in modules if name.startswith("gradclip.backends")]


def test_without_libcst_the_codemod_is_not_imported() -> None:
    code = "import sys\nsys.modules['libcst'] = None\ntry:\n    import gradclip.migrate.codemod\n"
    code += "except ImportError as error:\n    print(error.name)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    assert done.stdout == "libcst\n"


@pytest.mark.parametrize(
    "use",
    [
        'def f(p: "torch.Tensor"): ...',
        'x: list["torch.Tensor | None"] = []',
        'def f(p) -> "Optional[torch.Tensor]": ...',
        "x = p  # type: torch.Tensor",
        "def f(p):\n    # type: (torch.Tensor) -> None\n    pass",
        'def f(p):\n    """Sum.\n\n    >>> f(torch.ones(3))\n    3\n    """',
    ],
)
def test_an_import_that_text_uses_stays(use: str) -> None:
    migrated = migrate(f"import torch\n{use}\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    assert migrated.source == f"import gradclip\nimport torch\n{use}\ngradclip.clip_grad_norm_(p, 1.0)\n"


@pytest.mark.parametrize(
    "use", ["x = p  # type: ignore  # torch", '"""Sums of torch."""', 'print("--torch")', "# >>> torch.ones(3)"]
)
def test_an_import_that_text_only_mentions_goes(use: str) -> None:
    migrated = migrate(f"import torch\n{use}\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    assert migrated.source == f"import gradclip\n{use}\ngradclip.clip_grad_norm_(p, 1.0)\n"
