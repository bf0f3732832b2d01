"""What stands between the lines of a clip by hand: it is rewritten only if it is known to change nothing."""

from __future__ import annotations

import collections
import logging
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from migrate import between
from migrate.codemods import migrate, rewritten

from gradclip.migrate.codemod import migrate_source
from gradclip.source.model import Options, Verdict


class Stats(dict[str, float]):
    """A dictionary that takes attributes."""


def names() -> dict[str, object]:
    """What the harmless statements use."""
    writer = SimpleNamespace(add_scalar=lambda *_: None)
    return {"logger": logging.getLogger("between"), "writer": writer, "history": [], "stats": Stats()}


@pytest.mark.parametrize("framework", between.FRAMEWORKS)
def test_no_clip_with_an_unknown_statement_within_is_rewritten_and_each_is_named(framework: str) -> None:
    rewrites, silent = [], []
    count = 0
    for program in between.changed(framework):
        count += 1
        migrated = migrate_source(program.source, Options())
        if migrated.source != program.source:
            rewrites.append(program)
        elif program.kind not in between.DISPROVED and all(one.outcome is not Verdict.MANUAL for one in migrated.sites):
            silent.append(program)
    assert count >= 40
    assert not rewrites, f"{len(rewrites)} of {count}: {rewrites[0]}"
    assert not silent, f"{len(silent)} of {count}: {silent[0]}"


def test_a_list_of_parameters_made_before_keeps_a_clip_only_from_what_stands_between_its_loops() -> None:
    """What the list has by the first loop is clipped by hand, and by the call: only its loops read gradients."""
    before = "def clip(model, limit):\n    params = list(model.parameters())\n    sync(params)\n"
    programs = [one.source.replace("def clip(params, limit):\n", before) for one in between.changed("torch")]
    rewrites = [one for one in programs if migrate_source(one, Options()).source != one]
    assert len(programs) >= 80
    assert not rewrites, f"{len(rewrites)} of {len(programs)}: {rewrites[0]}"


@pytest.mark.parametrize("framework", between.FRAMEWORKS)
def test_a_harmless_statement_within_a_clip_keeps_no_rewrite_away(framework: str) -> None:
    kept = [one for one in between.harmless(framework) if rewritten(migrate(one.source)) != ["GM402"]]
    assert not kept, f"{len(kept)}: {kept[0]}"


def test_a_clip_with_a_harmless_statement_within_gives_the_same_gradients() -> None:
    kinds = collections.Counter(
        clipped_alike(program.source, limit) for program in between.harmless("numpy") for limit in (0.5, 100.0)
    )
    assert kinds[True] == 2 * len(between.HARMLESS)


def clipped_alike(source: str, limit: float) -> bool:
    one, other = (run(text, limit) for text in (source, migrate(source).source))
    return all(np.allclose(a, b, rtol=1e-6, atol=0) for a, b in zip(one, other, strict=True))


def run(text: str, limit: float) -> list[np.ndarray]:
    scope = names()
    exec(compile(text, "between", "exec"), scope)
    drawn = np.random.default_rng(3)
    grads = [drawn.normal(size=(3, 4)) * 3, drawn.normal(size=5)]
    made = scope["clip"](grads, limit)  # type: ignore[operator]
    return grads if made is None else made


NORM = "    n = torch.stack([p.grad.norm() for p in params]).norm()\n"
SCALE = "    if n > limit:\n        for p in params:\n            p.grad.mul_(limit / n)\n"
#: places that the generator's forms do not have
INLINE = "    for p in params:\n        p.grad.mul_(min(1.0, limit / n))\n"
CLIP = "def clip(params, limit, flat):\n"
OTHERS = {
    "a function that reduces": f"def total(params):\n{NORM}    dist.all_reduce(n)\n"
    f"    return n\n\n\n{CLIP}    n = total(params)\n{SCALE}",
    "a limit that gets the norm": f"{CLIP}{NORM}" + INLINE.replace("limit", "schedule(n)"),
    "a list of norms": f"{CLIP}    norms = [p.grad.norm() for p in params]\n    norms.append(extra)\n"
    f"    n = torch.stack(norms).norm()\n{INLINE}",
    "a clamp into the norm": f"{CLIP}{NORM}    c = torch.clamp(limit / n, max=1.0, out=n)\n"
    "    for p in params:\n        p.grad.mul_(c)\n",
    "a with around the scaling": f"{CLIP}{NORM}    with summed(params):\n{textwrap.indent(INLINE, '    ')}",
    "a function within": f"{CLIP}{NORM}    def scale():\n{textwrap.indent(INLINE, '    ')}    noise(params)\n    scale()\n",
    "parameters that a call reduces": f"{CLIP}{NORM}{INLINE}".replace("in params", "in flat.synced()"),
    "a property": "class Net:\n    @property\n    def limit(self):\n        return sync(self)\n\n"
    + textwrap.indent(f"def clip(self, params):\n{NORM}{INLINE}", "    ").replace("limit /", "self.limit /"),
    "a method of the class": "class Net:\n    def item(self, n):\n        dist.all_reduce(n)\n\n"
    + textwrap.indent(f"def clip(self, params, limit):\n{NORM}    self.item(n)\n{INLINE}", "    "),
    "a buffer with the gradients": f"{CLIP}{NORM}    flat *= 2\n{INLINE}",
    "a sum into such a buffer": f"{CLIP}{NORM}    flat += 1\n{INLINE}",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_places_of_a_clip_are_looked_at_too(kind: str) -> None:
    source = f"import torch\nimport torch.distributed as dist\n\n\n{OTHERS[kind]}"
    migrated = migrate(source)
    assert migrated.source == source
    assert [one for one in migrated.sites if one.outcome is Verdict.MANUAL]


def test_what_stands_between_is_shown_with_the_call_for_a_norm_that_was_reduced() -> None:
    [site] = migrate(f"import torch\nimport torch.distributed as dist\n\n\n{CLIP}{NORM}    dist.all_reduce(n)\n{SCALE}").sites
    assert "`dist.all_reduce(n)` runs between its first and its last line" in site.reason
    assert "gradclip.clip_grads_with_norm_(params, limit, n)" in site.advice


#: where a norm is read though the clip has not run
UNBOUND = {
    "a branch": f"{CLIP}{NORM}    if flat:\n{textwrap.indent(SCALE, '    ')}    return n\n",
    "a loop": f"{CLIP}    for one in flat:\n"
    + textwrap.indent(f"{NORM}    if one:\n        continue\n{SCALE}", "    ")
    + "    return n\n",
}


@pytest.mark.parametrize("kind", UNBOUND)
def test_a_norm_stays_where_it_is_read_without_the_clip(kind: str) -> None:
    """Else the name is unbound there."""
    migrated = migrate(f"import torch\n\n\n{UNBOUND[kind]}")
    assert rewritten(migrated) == ["GM402"]
    assert NORM.strip() in migrated.source
    assert "n = gradclip" not in migrated.source
