"""The table: it is consistent, its targets exist, its equivalents are equivalent, and it misses none.

``*_only/test_table.py`` compare it with the frameworks.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import ulps

import gradclip
from gradclip import dialects
from gradclip.core.rule import Rule, Scope
from gradclip.explain.call import find
from gradclip.explain.equivalents import FRAMEWORKS, NONE, equivalents
from gradclip.migrate.codemod import migrate_source
from gradclip.natives import BY_CODE, BY_NAME, DIALECTS, KEYWORDS, NATIVES, Kind, Native
from gradclip.natives.meaning import dialect_arguments, differences
from gradclip.natives.targets import OWN_NAMES, Target, targets
from gradclip.source.model import FRAMEWORKS as SOURCES
from gradclip.source.model import Options

PREFIXES = {"GT1": "torch", "GF2": "tensorflow", "GK3": "keras", "GP4": "paddle", "GL4": "paddle", "GO5": "optax jax"}
OWN = {"optax": "jax"}  # the key in ``targets`` for the framework's own
TARGETS = [(api, framework, target) for api in NATIVES for framework, target in targets(api).items()]
NATIVE = [(api, framework, target) for api, framework, target in TARGETS if framework != "gradclip"]


def ids(value: Any) -> str | None:
    return value.code if isinstance(value, Native) else value if isinstance(value, str) else ""


# ---- consistency --------------------------------------------------------------------------------------------------------


def test_a_name_and_a_code_are_of_one_api() -> None:
    names = Counter(name for api in NATIVES for name in api.names)
    assert [name for name, times in names.items() if times > 1] == []
    assert len(BY_CODE) == len(NATIVES)
    assert len(BY_NAME) == len(names)


@pytest.mark.parametrize("api", NATIVES, ids=ids)
def test_an_api(api: Native) -> None:
    assert re.fullmatch(r"G[TFKPLO]\d{3}", api.code)
    assert api.framework in PREFIXES[api.code[:3]].split()
    assert api.framework in SOURCES
    assert api.status in ("current", "deprecated", "removed")
    assert re.match(r"\w+ \d+\.\d+(\.\d+)?, [\w/]+\.py$", api.source), "says which version's file it was read from"
    assert bool(api.since) == (api.status != "current"), "says since when it is no longer current"
    assert api.link.startswith("https://")
    assert api.note.endswith(".")
    assert api.returns


def test_own_names() -> None:
    assert {name for name in gradclip.__all__ if "lip" in name or "norm" in name} == OWN_NAMES


@pytest.mark.parametrize("api", [api for api in NATIVES if api.kind is Kind.KEYWORD], ids=ids)
def test_a_keyword(api: Native) -> None:
    assert api.keyword in api.signature.parameters
    assert all(name.endswith(f"({api.keyword}=)") for name in api.names)
    assert all(api in KEYWORDS[name.partition("(")[0]] for name in api.names)


def test_only_a_keyword_has_one() -> None:
    assert [api.code for api in NATIVES if bool(api.keyword) != (api.kind is Kind.KEYWORD)] == []


@pytest.mark.parametrize("api", [api for api in NATIVES if api.dialect], ids=ids)
def test_a_native_gives_its_dialect_what_it_needs(api: Native) -> None:
    given = dialect_arguments(api, dict.fromkeys(api.signature.parameters, 1.0))
    needed = [p.name for p in inspect.signature(api.function).parameters.values() if p.default is p.empty]
    if api.kind is not Kind.MEASURE:
        assert set(needed) <= set(given)
    assert set(api.called) <= set(api.signature.parameters)


def test_every_dialect_has_a_native() -> None:
    assert {api.dialect for api in NATIVES} - {""} == set(DIALECTS)


# ---- the targets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "framework", "target"), TARGETS, ids=ids)
def test_a_target_is_there(api: Native, framework: str, target: Target) -> None:
    assert framework in ("gradclip", *FRAMEWORKS)
    if framework == "gradclip":
        assert gradclip_has(target.name)
    else:
        assert BY_NAME[target.name].status == "current"
    if target.wrapper:
        module, _, function = target.wrapper.rpartition(".")
        spec = importlib.util.find_spec(module)
        assert spec
        assert spec.origin
        origin = Path(spec.origin)
        sources = origin.parent.iterdir() if origin.stem == "__init__" else [origin]  # this test imports no framework
        trees = [ast.parse(path.read_text("utf-8")) for path in sources if path.suffix == ".py"]
        assert function in {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def gradclip_has(name: str) -> bool:
    value: Any = gradclip
    for part in name.split(".")[1:]:
        value = getattr(value, part, None) or importlib.import_module(f"{value.__name__}.{part}")
    return callable(value)


@pytest.mark.parametrize(("api", "framework", "target"), TARGETS, ids=ids)
def test_a_target_takes_the_arguments(api: Native, framework: str, target: Target) -> None:
    native = api.signature.parameters
    assert all(native[name].default is not inspect.Parameter.empty for name in target.dropped)
    assert target.arguments.keys() <= native.keys()
    if target.by_hand:
        assert set(re.findall(r"{(\w+)}", target.form)) <= {*native, "rule"}
        assert not target.arguments
        return
    if api.keyword:
        assert target.wrapper
        return
    takes = set(_signature_of(target, framework).parameters)
    assert {target.arguments.get(name, name) for name in native if name in target.arguments or not target.arguments} <= (
        takes | target.dropped
    )


def _signature_of(target: Target, framework: str) -> inspect.Signature:
    if framework != "gradclip":
        return BY_NAME[target.name].signature
    value: Any = gradclip
    for part in target.name.split(".")[1:]:
        value = getattr(value, part)
    return inspect.signature(value)


# ---- equivalents --------------------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")
CASES: tuple[list[np.ndarray], ...] = tuple(
    [np.array(gradient) for gradient in gradients]
    for gradients in (
        ([[3.0, 4.0], [1.0, 2.0]], [[0.5, -0.25], [0.125, 8.0]]),
        ([[0.3, 0.4], [0.1, 0.2]],),
        ([[0.6, 0.0], [0.0, 0.8]], [[0.6, 0.0], [0.0, 0.8]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[1e-9, 0.0], [0.0, 0.0]]),
        ([[1e200, -1e200], [1e-200, 1.0]],),
        ([[INF, 1.0], [2.0, -3.0]], [[0.5, 0.5], [0.5, 0.5]]),
        ([[NAN, 1.0], [2.0, -3.0]], [[0.5, 0.5], [0.5, 5.0]]),
    )
)


def clipped(rule: Rule, gradients: list[np.ndarray]) -> list[bytes]:
    """Return a rule's results as bytes; all NaN count as equal."""
    found = gradclip.clip(gradients, rule, params=[np.ones_like(g) for g in gradients]).grads
    return [np.where(np.isnan(g), NAN, g).tobytes() for g in found]


def differ(one: Rule, other: Rule) -> bool:
    return any(clipped(one, gradients) != clipped(other, gradients) for gradients in CASES)


def call_of(api: Native) -> str:
    """Return a call with ordinary arguments."""
    values = {"clip_value_min": "-1.0", "min": "-1.0", "min_value": "-1.0", "max_value": "1.0"}
    name = api.names[0].partition("(")[0]
    if api.keyword:
        before = [
            p.name for p in api.signature.parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        return f"{name}({', '.join([*before, f'{api.keyword}=1.0'])})"
    numbers = dialect_arguments(api, {parameter: parameter for parameter in api.signature.parameters}).values()
    given = [
        values.get(p.name, "1.0") if p.name in numbers else p.name
        for p in api.signature.parameters.values()
        if p.default is p.empty or p.name in values
    ]
    return f"{name}({', '.join(given)})"


@pytest.mark.parametrize(("api", "framework", "target"), NATIVE, ids=ids)
def test_an_equivalent_clips_to_the_same(api: Native, framework: str, target: Target) -> None:
    """Each target's line of code has an equivalent rule; gradclip runs it on NumPy's arrays with ordinary arguments."""
    call = find(call_of(api))
    (_, found) = equivalents(call, to=framework) if "gradclip" in targets(api) else (None, *equivalents(call, to=framework))
    assert found.mark != NONE, found
    other = find(found.code)
    assert other.api is BY_NAME[target.name]
    assert call.rule is not None
    assert other.rule is not None
    if api.kind is Kind.MEASURE:
        norms = [[gradclip.norm(gradients, rule) for gradients in CASES] for rule in (call.rule, other.rule)]
        assert np.array_equal(*norms, equal_nan=True)
    else:
        assert not differ(call.rule, other.rule)


@pytest.mark.parametrize(("api", "framework", "target"), TARGETS, ids=ids)
def test_only_what_has_no_arithmetic_is_exact(api: Native, framework: str, target: Target) -> None:
    """Each framework rounds a norm in its own way: only a clip without a norm, or the very same function, is exact."""
    if target.exact and "same function" not in target.note:
        assert api.dialect
        assert find(call_of(api)).rule.scope is Scope.VALUE  # type: ignore[union-attr]


# These do more than their rule: one takes a known norm, the others add noise.
MORE = ("GT105", "GO508", "GO509")
WITHOUT = [
    (api, framework)
    for api in NATIVES
    for framework in FRAMEWORKS
    if api.dialect and api.kind is not Kind.MEASURE and api.code not in MORE
    if framework not in targets(api) and framework != OWN.get(api.framework, api.framework)
]


@pytest.mark.parametrize(("api", "framework"), WITHOUT, ids=ids)
def test_no_equivalent_is_missed(api: Native, framework: str) -> None:
    """If the table has no equivalent, each of the framework's rules clips some gradients to different numbers."""
    rule = find(call_of(api)).rule
    assert rule is not None
    module = {"jax": "optax"}.get(framework, framework)
    for dialect, function in DIALECTS.items():
        if dialect.startswith(f"{module}."):
            bounds = {"tensorflow.clip_by_value": (-1.0, 1.0), "paddle.clip_grad_by_value": (1.0, -1.0)}
            other = function(*bounds.get(dialect, (1.0,)))
            examples = Scope.EXAMPLE in (rule.scope, other.scope)
            assert rule.scope is not other.scope if examples else differ(rule, other), f"{dialect} is an equivalent"


def test_torch_and_optax_differ_by_more_than_rounding() -> None:
    """The numbers behind one inequivalence: 1e-6 in the denominator is 2 ulp of float32 at a norm of 5, and 14 at 0.5."""
    for norm, limit, least in ((5.0, 1.0, 2), (0.5, 0.1, 14)):
        gradient = np.array([0.6 * norm, 0.8 * norm], np.float32)
        torch = gradclip.clip(gradient, dialects.torch.clip_grad_norm(limit)).grads
        optax = gradclip.clip(gradient, dialects.optax.clip_by_global_norm(limit)).grads
        assert ulps(torch, optax, "float32") >= least


def test_tensorflow_and_optax_differ_at_an_infinite_norm() -> None:
    gradients = [np.array([INF, 1.0]), np.array([0.5])]
    tensorflow = gradclip.clip(gradients, dialects.tensorflow.clip_by_global_norm(1.0)).grads
    optax = gradclip.clip(gradients, dialects.optax.clip_by_global_norm(1.0)).grads
    assert np.isnan(tensorflow[1]).all()
    assert (optax[1] == 0).all()


# ---- meaning ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "fields"),
    [
        (dialects.torch.clip_grad_value(2.0), dialects.tensorflow.clip_by_value(-2.0, 2.0), ()),
        (dialects.tensorflow.clip_by_norm(2.0), dialects.keras.clipnorm(2.0), ()),
        (dialects.torch.clip_grad_norm(1.0), dialects.paddle.clip_grad_by_global_norm(1.0), ("eps",)),
        (dialects.torch.clip_grad_norm(1.0), dialects.torch.clip_grad_norm(1.0, 1.0), ("order",)),
        (dialects.torch.clip_grad_norm(1.0), dialects.torch.clip_grad_norm(2.0), ("limit",)),
        (dialects.torch.clip_grad_norm(1.0), dialects.torch.clip_grad_value(1.0), ("scope",)),
        (dialects.keras.clipvalue(0.0), dialects.optax.clip(0.0), ("lower", "upper")),
        (dialects.tensorflow.clip_by_norm(1.0), dialects.optax.clip_by_block_rms(1.0), ("mean",)),
    ],
)
def test_differences(one: Rule, other: Rule, fields: tuple[str, ...]) -> None:
    assert differences(one, other) == fields


def test_the_arguments_of_a_native_that_its_dialect_takes() -> None:
    native = BY_CODE["GL458"]
    found = dialect_arguments(native, {"min_value": -1.0, "max_value": 2.0})
    assert native.function(**found) == dialects.paddle.clip_grad_by_value(2.0, -1.0)
    assert dialect_arguments(BY_CODE["GL454"], {"clip": None}) == {}


def test_the_first_parameter_of_a_native_that_takes_tensors_is_for_them() -> None:
    """The names of such parameters: the codemod looks for gradients there."""
    first = {next(iter(native.signature.parameters)) for native in NATIVES if native.takes_tensors}
    known = {"parameters", "tensors", "t", "t_list", "gradients_to_variables", "x", "grads", "tree", "updates", "grad_tree"}
    assert first == known
    assert not any(native.called.get(name) for native in NATIVES if native.takes_tensors for name in first)


@pytest.mark.parametrize(
    ("code", "assigned"),
    [
        ("import tensorflow as tf\ntf.clip_by_global_norm(grads, 1.0)\n", "grads, _"),
        ("import tensorflow as tf\ntf.clip_by_norm(grads, 1.0)\n", "grads"),
        ("import optax\noptax.per_example_global_norm_clip(grads, 1.0)\n", "grads, _"),
        ("from jax.example_libraries import optimizers\noptimizers.clip_grads(grads, 1.0)\n", "grads"),
    ],
)
def test_an_ignored_result_is_assigned_as_its_record_says(code: str, assigned: str) -> None:
    (site,) = migrate_source(code, Options()).sites
    assert site.code == "GM105"
    assert site.advice.startswith(f"Write: {assigned} = ")
