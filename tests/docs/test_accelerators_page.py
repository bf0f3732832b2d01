"""docs/accelerators.md: its tables match the current counts, and its example runs.

``PYTHONPATH=tests:tests/support:tools python tests/docs/test_accelerators_page.py torch``
prints a framework's table, to paste between its marks.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "accelerators.md").read_text(encoding="utf-8")
COUNTS = (1, 1000)
Row = tuple[str, str, list[tuple[int | None, int]]]  #: function, dtype, and (native, gradclip) for each count


def of_torch(launches: Any, patch: pytest.MonkeyPatch) -> Iterator[Row]:
    for name in ("clip_grad_norm_", "get_total_norm", "clip_grads_with_norm_", "clip_grad_value_"):
        for dtype in ("float32", "bfloat16", "mixed"):
            counts = [launches.counts(name, count, launches.DTYPES[dtype], "host") for count in COUNTS]
            yield name, dtype, [(native, ours) for ours, native in counts]


def of_tensorflow(launches: Any, patch: pytest.MonkeyPatch) -> Iterator[Row]:
    patch.setattr(launches.lanes, "is_on_host", lambda device: False)
    names = {"global": "tf.clip_by_global_norm", "each": "tf.clip_by_norm of each", "value": "tf.clip_by_value of each"}
    for key, name in names.items():
        for dtype in ("float32", "bfloat16"):
            given = [launches.gradients(count, dtype) for count in COUNTS]
            both = [[launches.issued(partial(f, x, 0.25))[0] for f in launches.FUNCTIONS[key]] for x in given]
            yield name, dtype, [(native, ours) for native, ours in both]


def of_paddle(launches: Any, patch: pytest.MonkeyPatch) -> Iterator[Row]:
    import paddle

    import gradclip

    patch.setattr(launches.lanes, "on_host", lambda tensors: False)
    patch.setattr(launches.versions, "divide_", launches.divided_on_the_host)
    for name in ("ClipGradByGlobalNorm", "ClipGradByNorm"):
        native, ours = getattr(paddle.nn, name)(0.5), getattr(gradclip, name)(0.5)
        for dtype in ("float32", "bfloat16"):
            counts: list[tuple[int | None, int]] = []
            for count in COUNTS:
                given = [(launches.PARAMETER, x) for x in launches.gradients(count, dtype)]
                # on the host Paddle's own clips have no kernels for bfloat16
                theirs = launches.launched(partial(native, given))[0] if dtype == "float32" else None
                counts.append((theirs, launches.launched(partial(ours, given))[0]))
            yield name, dtype, counts


def of_jax(launches: Any, patch: pytest.MonkeyPatch) -> Iterator[Row]:
    from gradclip.backends.jax import places

    patch.setattr(places, "is_host", lambda platform: False)
    given = [launches.gradients(count, "float32") for count in COUNTS]  # once: compiling for a thousand takes half a minute

    def counted(clip: Any) -> list[int]:
        return [len(launches.launches(launches.updated(clip, grads))) for grads in given]

    ours = [counted(launches.gradient_transformation(rule_of(1e-3))) for _, rule_of in launches.PAIRS.values()]
    launches.jax.clear_caches()  # programs from other tests would take JAX's fast path, which cannot be counted
    for (name, (native, _)), mine in zip(launches.PAIRS.items(), ours, strict=True):
        yield f"optax.{name}", "float32", list(zip(counted(native(1e-3)), mine, strict=True))


ROWS = {"torch": of_torch, "tensorflow": of_tensorflow, "paddle": of_paddle, "jax": of_jax}


def table(framework: str, patch: pytest.MonkeyPatch) -> str:
    lines = ["| function | dtype | 1 gradient: native | gradclip | 1,000 gradients: native | gradclip |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
    alike: dict[tuple[str, str], list[str]] = {}  # the dtypes with the same counts share a row
    for name, dtype, counts in ROWS[framework](importlib.import_module(f"{framework}_only.test_launches"), patch):
        cells = ["no kernel" if n is None else f"{n:,}" for pair in counts for n in pair]
        alike.setdefault((name, " | ".join(cells)), []).append(dtype)
    lines += [f"| `{name}` | {', '.join(dtypes)} | {cells} |" for (name, cells), dtypes in alike.items()]
    return "\n".join(lines)


@pytest.mark.slow("an outdated table; the tests of launches cover the counts themselves")
def test_the_table(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    name = pytestconfig.getoption("--backend")
    if name in ROWS:
        assert PAGE.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- /{name} -->")[0] == table(name, monkeypatch)
    assert set(re.findall(r"<!-- (\w+) -->", PAGE)) == ROWS.keys()


def test_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Run each block of Python, in order."""
    import numpy as np

    names: dict[str, Any] = {"grads": [np.array([3.0, 4.0]), np.array([0.0, 12.0])], "step": 100}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, "docs/accelerators.md", "exec"), names)
    assert capsys.readouterr().out == "13.0\n"


def test_the_readme_links_it() -> None:
    assert "](docs/accelerators.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as monkeypatch:
        print(table(sys.argv[1], monkeypatch))
