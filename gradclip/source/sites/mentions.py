"""Names that look like clipping calls and cannot be rewritten: methods, the project's own functions, unresolved names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import libcst as cst

from gradclip.natives import BY_NAME, KEYWORDS, Kind
from gradclip.natives.targets import OWN_NAMES, targets
from gradclip.source.bind import called, keyword
from gradclip.source.found import Context, Decision, Finding, family, manual, unchanged
from gradclip.source.resolve import Resolver
from gradclip.source.settings import own_setting
from gradclip.source.sites.configuration import CLIP_KEYWORDS, KERAS, clips_keras
from gradclip.source.source import Source, last_name, once, root, words

__all__ = ["FUNCTIONS", "METHODS", "call", "replaced", "replacements", "text", "value"]

#: last names of the table's functions that are specific enough; "clip" is not
FUNCTIONS = frozenset(
    last for name in BY_NAME if re.search(r"(?i)clip.|_norm", last := name.rpartition(".")[2]) and "(" not in name
)
METHODS = FUNCTIONS | words(
    "clip_gradients clip_gradient clip_grads clip_grad clip_grad_ clip_gradient_ clip_grad_norm_fp32 clip_master_grads "
    "unscale_and_clip_grads clip_grad_by_norm clip_grad_by_value"
)
_OF_TENSORS = words("clip_by_value clip_by_norm clip_by_average_norm global_norm")
_FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "tf_keras", "paddle", "optax", "jax", "flax"})
_USUAL = {"tf": "tensorflow", "th": "torch", "jnp": "jax.numpy"}  #: the usual names of modules
_MODULES = words("torch th nn utils tf tensorflow keras paddle fluid optax jax jnp")  # the usual local names
_PATCHES = words("patch setattr delattr object")  # mock's, pytest's monkeypatch's, and the builtins
_RUNS = words("eval exec compile timeit Timer")  # functions that run a string as code, or compile it
_CALLED = re.compile(r"\b(\w++)\s*\(")
#: module -> the last names of its functions in the table
_LAST_NAMES: dict[str, list[str]] = {}
for _name in BY_NAME:
    _LAST_NAMES.setdefault(_name.rpartition(".")[0], []).append(_name.rpartition(".")[2])
_MOST_PARTS = max(name.count(".") + 1 for name in BY_NAME)
_LASTS = frozenset().union(*_LAST_NAMES.values())
_WHO = {
    "accelerator": "Accelerate's unscales, and reduces over the shards",
    "fabric": "Lightning Fabric's knows the strategy and the precision",
    "engine": "The engine's knows its partitions",
    "booster": "The booster's knows its shards",
    "trainer": "The trainer's knows the strategy and the precision",
}


def call(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Report a call that has a clip's name and is not a function of the table."""
    names, name = context.resolver.names(node.func), last_name(node.func)
    if any(qualified.startswith("gradclip.") for qualified in names.qualified):
        if name in OWN_NAMES or "gradclip.backends" in str(names.single):
            yield unchanged(node, "GM002")
    elif names.qualified & (BY_NAME.keys() | KEYWORDS.keys()):
        return
    elif name in METHODS:
        yield _named(node, name, context)
    else:
        yield from _keyword(node, context)


def _named(node: cst.Call, name: str, context: Context) -> Decision:
    names, source = context.resolver.names(node.func), context.source
    first = root(node.func)
    written = source.code(node.func)
    top = {qualified.partition(".")[0] for qualified in names.qualified}
    unbound = names.unbound and (isinstance(node.func, cst.Name) or (isinstance(first, cst.Name) and first.value in _MODULES))
    if isinstance(node.func, cst.Attribute) and not top and not unbound:
        return _method(node, node.func, name, context)
    if unbound:
        return manual(node, _from_nowhere(written, context))
    if top & _FRAMEWORKS:
        return manual(node, Finding("GM211", f"{sorted(names.qualified)[0]} is not in gradclip's table."))
    if names.local:
        return unchanged(node, "GM207")
    where = sorted(names.qualified)[0]
    if native := _reexported(where) or _reexported(f".{written}"):
        if other := _look_alike(node, name, context):
            return unchanged(node, "GM112", other)
        reason = f"`{written}` is {native}, if {where.removesuffix('.' + name)} is that library."
        return manual(node, Finding("GM201", reason, "Import the library here, and run the migration again."))
    return unchanged(node, "GM207", f"{where} is a function of another library, or the project's own.")


def _reexported(qualified: str) -> str:
    """The native that a module of the project passes on: ``from pkg.env import tf``; "" for a function of its own."""
    parts = qualified.split(".")
    first = max(1, len(parts) - _MOST_PARTS)
    tails = (".".join((_USUAL.get(parts[at], parts[at]), *parts[at + 1 :])) for at in range(first, len(parts) - 1))
    return next((tail for tail in tails if tail in BY_NAME), "")


def _look_alike(node: cst.Call, name: str, context: Context) -> str:
    """Why a function of any tensors, perhaps a framework's, clips no gradient here; "" if it may clip one."""
    tensors, gradients = node.args[0].value if node.args else None, context.gradients
    if name not in _OF_TENSORS or tensors is None or gradients.is_gradient(tensors) or gradients.is_taken(node):
        return ""
    return f"Nothing shows that {context.source.shown(tensors)} is a gradient."


def _from_nowhere(written: str, context: Context) -> Finding:
    stars = context.resolver.stars
    if stars:
        return Finding("GM202", f"`{written}` may come from {context.source.shown(stars[-1])}.")
    return Finding("GM209", f"Nothing in this source binds `{written.partition('.')[0]}`.")


def _method(node: cst.Call, func: cst.Attribute, name: str, context: Context) -> Decision:
    """Decide on ``accelerator.clip_grad_norm_(...)``, ``self.clip_gradients(...)``, ``model.clip_grad_norm_(1.0)``."""
    receiver = context.source.code(func.value)
    if last_name(func.value) == "self" and name in _methods(context.source):
        return unchanged(node, "GM207", f"`{receiver}.{name}` is a method that this source defines.")
    who = next((text for word, text in _WHO.items() if word in receiver.lower()), None)
    if who is None and name == "clip_gradients" and receiver == "self":
        who = "Lightning's knows the precision plugin"
    if who is None and name == "clip_grad_norm" and "fairseq" in context.resolver.modules:
        who = "fairseq's knows the scale of the loss and the shards"
    if who is None and name == "clip_grad_norm_" and _is_for_fsdp(node, context):
        who = "FSDP's knows the shards"
    if who is None and (other := _look_alike(node, name, context)):
        return unchanged(node, "GM112", other)
    if who is not None:
        return manual(node, Finding("GM109", f"`{receiver}.{name}` is a wrapper's own clip: {who}."))
    return manual(node, Finding("GM208", f"`{receiver}.{name}` is a method of an object whose class cannot be seen here."))


@once
def _methods(source: Source) -> frozenset[str]:
    """The names of the methods that a source defines."""
    parents = source.parents
    functions = source.all(cst.FunctionDef)
    return frozenset(f.name.value for f in functions if isinstance(parents.get(parents[f]), cst.ClassDef))


def _is_for_fsdp(node: cst.Call, context: Context) -> bool:
    """Whether a call is in a branch that tests for FSDP, or in a file that wraps models with it."""
    return any("fsdp" in context.source.code(test).lower() for test, _ in context.source.tests(node)) or _wraps(context)


@once
def _wraps(context: Context) -> bool:
    """Whether a source wraps models with FSDP."""
    return any("FullyShardedDataParallel" in binding.qualified for binding in context.resolver.bindings)


def _keyword(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Report ``Adam(clipnorm=1.0)`` if ``Adam`` does not resolve to Keras's."""
    given = next((name for one in node.args if (name := keyword(one)) in CLIP_KEYWORDS), "")
    if not given:
        return
    func = called(node).func
    names, written = context.resolver.names(func), context.source.code(func)
    if func is not node.func and names.qualified & KEYWORDS.keys():
        reason = f"`{written}` clips by `{given}`, in each optimizer that it makes."
        yield manual(node, Finding("GM205", reason, "Leave it out; write: gradclip.clipped(optimizer, rule)."))
    elif _is_keras(func, context):
        reason = f"`{written}` makes an optimizer of Keras, whose class is not named here; it clips by `{given}`."
        yield manual(node, Finding("GM211", reason, "Leave it out; write: gradclip.clipped(optimizer, rule)."))
    elif (names.local and not names.qualified) or any(qualified.startswith(".") for qualified in names.qualified):
        yield unchanged(node, "GM207", f"`{written}` is the project's own, and so is its `{given}`.")
    elif names.unbound:
        yield manual(node, _from_nowhere(written, context))
    elif names.single == "builtins.dict":
        yield manual(node, clips_keras(given)) if given in KERAS else unchanged(node, "GM207", own_setting(given))
    else:
        yield manual(node, Finding("GM211", f"`{written}` takes `{given}`, but it is not in gradclip's table."))


def _is_keras(func: cst.BaseExpression, context: Context) -> bool:
    """Whether it is ``super().__init__`` in a subclass of a Keras optimizer, or ``getattr(keras.optimizers, name)``."""
    called = func.value if isinstance(func, cst.Attribute) and func.attr.value == "__init__" else func
    if not isinstance(called, cst.Call):
        return False
    bases: list[cst.BaseExpression] = []
    if called is not func and last_name(called.func) == "super":
        owner = context.source.within(func, cst.ClassDef)
        bases = [base.value for base in owner.bases] if owner is not None else []
    elif last_name(called.func) == "getattr":
        bases = [argument.value for argument in called.args[:1]]
    qualified = (name for base in bases for name in context.resolver.names(base).qualified)
    return any("optimizers" in _after_keras(name.split(".")) for name in qualified)


def _after_keras(parts: list[str]) -> list[str]:
    """The parts of a qualified name after ``keras``."""
    return parts[parts.index("keras") + 1 :] if parts[0] and "keras" in parts else []


# ---- without a call ------------------------------------------------------------------------------------------------------


def value(node: cst.Name | cst.Attribute, context: Context) -> Iterator[Decision]:
    """Report a function used as a value: ``partial(clip_grad_norm_, ...)``, ``clip = nn.utils.clip_grad_norm_``."""
    source, resolver = context.source, context.resolver
    names = resolver.names(node)
    known = names.qualified & BY_NAME.keys()
    if not known or names.renamed:
        return
    api = BY_NAME[min(known)]
    if context.options.sources and api.framework not in context.options.sources:
        return
    parent = source.parents[node]
    outer = source.parents.get(parent)
    if source.within(node, cst.Annotation) is not None or _is_asked_for(parent, outer, context):
        yield unchanged(node, "GM004", api=api)
        return
    if isinstance(outer, cst.Call) and resolver.name(outer.func).endswith("inject_hyperparams"):
        target = targets(api).get("gradclip")
        arguments = ", ".join(api.signature.parameters)
        made = f"gradclip.backends.jax.gradient_transformation({target.name if target else ''}({arguments}))"
        advice = f"Write: optax.inject_hyperparams(lambda {arguments}: {made}), whose hyperparameters keep their names."
        yield manual(node, Finding("GM115", advice=advice), api)
        return
    native = context.options.to == family(api.framework)
    target = targets(api).get(context.options.to if native else "gradclip")
    if api.kind is Kind.MEASURE and context.options.to == "gradclip" and not context.options.norms:
        yield unchanged(node, "GM005", api=api)
        return
    if native and target is None and api.status == "current":
        yield unchanged(node, "GM001", api=api)
        return
    advice = f"Pass {target.name} instead: it takes the same arguments." if target is not None and not target.wrapper else ""
    yield manual(node, Finding("GM205", f"{min(known)} is passed as a value: its calls cannot be read here.", advice), api)


def _is_asked_for(parent: cst.CSTNode, outer: cst.CSTNode | None, context: Context) -> bool:
    """Whether a class is in the second argument of ``isinstance``: ``isinstance(clip, paddle.nn.ClipGradByNorm)``."""
    while isinstance(parent, (cst.Element, cst.Tuple)):
        parent, outer = context.source.parents[parent], context.source.parents.get(context.source.parents[parent])
    return isinstance(outer, cst.Call) and last_name(outer.func) in ("isinstance", "issubclass")


def text(node: cst.SimpleString, context: Context) -> Iterator[Decision]:
    """Report a function named in a string: ``getattr(nn.utils, "clip_grad_norm_")``, ``eval("clip_grad_norm_(p, 1.0)")``."""
    outer = context.source.within(node, cst.Call)
    written = node.raw_value
    if outer in context.replaced:
        return
    is_argument = context.source.parents.get(context.source.parents[node]) is outer
    if is_argument and outer is not None and last_name(outer.func) == "getattr" and written in FUNCTIONS:
        yield manual(outer, Finding("GM210", f"`{written}` is looked up by its name."))
    elif is_argument and outer is not None and last_name(outer.func) in _RUNS:
        called = next((name for name in _CALLED.findall(written) if name in FUNCTIONS), None)
        if called is not None:
            yield manual(
                outer, Finding("GM210", f"`{called}` is called by code in a string.", "Write the code out, or change it.")
            )
    elif "." in written and written in BY_NAME:
        yield manual(node, Finding("GM210", f"`{written}` is named in a string."))


def looked_up(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Report ``getattr(paddle.nn, settings["name"])`` in a source that names a clip of that module."""
    if last_name(node.func) != "getattr" or len(node.args) < 2 or isinstance(node.args[1].value, cst.SimpleString):
        return
    module = context.resolver.name(node.args[0].value)
    strings = context.source.once(looked_up, lambda: {s.raw_value for s in context.source.all(cst.SimpleString)})
    clip = min((name for name in _LAST_NAMES.get(module, ()) if name in strings), default="")
    if clip:
        yield manual(node, Finding("GM210", f"A function of {module} is looked up by a name, which can be `{clip}`."))


def replaced(node: cst.CSTNode, name: str) -> Decision:
    """Decide on ``torch.nn.utils.clip_grad_norm_ = mine``, ``mock.patch("torch.nn.utils.clip_grad_norm_")``."""
    reason = f"It puts another function in the place of {name}: calls of gradclip would not see it."
    return manual(node, Finding("GM201", reason, "Replace gradclip's function instead, or call the other one by its own name."))


def replacements(source: Source, resolver: Resolver) -> Mapping[cst.CSTNode, str]:
    """The places that replace a function -> the qualified name of the function."""
    found: dict[cst.CSTNode, str] = {}
    for assigned in source.all(cst.AssignTarget):
        if isinstance(assigned.target, cst.Attribute) and assigned.target.attr.value in _LASTS:
            found[assigned.target] = resolver.name(assigned.target)
    for call in source.all(cst.Call):
        if last_name(call.func) in _PATCHES:
            found[call] = _patched(call, resolver)
    return {node: name for node, name in found.items() if name in BY_NAME}


def _patched(call: cst.Call, resolver: Resolver) -> str:
    """The function that ``patch("a.b")``, ``patch.object(a, "b")`` or ``setattr(a, "b", mine)`` replaces."""
    values = [argument.value for argument in call.args[:2]]
    if not values:
        return ""
    if isinstance(values[0], cst.SimpleString):
        return str(values[0].raw_value)
    if len(values) == 2 and isinstance(values[1], cst.SimpleString):
        return f"{resolver.name(values[0])}.{values[1].raw_value}"
    return ""
