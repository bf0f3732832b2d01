"""GM108 for transformations: a clip after the optimizer in ``optax.chain``."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.migrate.apis.model import Kind
from gradclip.migrate.codemod.found import ApiCall, Finding

__all__ = ["check"]

_CHAINS = frozenset(f"optax.{module}{name}" for module in ("", "transforms.") for name in ("chain", "named_chain"))
_OPTIMIZER = re.compile(
    r"optax\.(\w+\.)?(scale_by_\w+|scale|adam\w*|sgd|noisy_sgd|rmsprop|adagrad|adadelta|adafactor|lion|lamb|lars|novograd|nadam\w*|"
    r"radam|yogi|sm3|fromage|adabelief|amsgrad|rprop|lbfgs|sign_sgd|optimistic_\w+|adan|muon|prodigy|sophia)"
)


def check(found: ApiCall) -> Finding | None:
    """A clip that follows a transformation from gradients to updates: it clips updates."""
    if found.api.framework != "optax" or found.api.kind is not Kind.OBJECT or found.api.dialect.endswith("block_rms"):
        return None
    source, resolver = found.context.source, found.context.resolver
    argument = source.parents[found.call]
    pair = source.parents[argument] if isinstance(argument, cst.Element) else None
    if isinstance(pair, cst.Tuple):  # ("clip", optax.clip(1.0)) in a named_chain
        argument = source.parents[pair]
    chain = source.parents.get(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(chain, cst.Call) or resolver.name(chain.func) not in _CHAINS:
        return None
    for link in chain.args:
        if link is argument:
            return None
        value = link.value
        if isinstance(value, cst.Tuple) and len(value.elements) == 2:
            value = value.elements[1].value
        if isinstance(value, cst.Name):
            value = resolver.value_of(value) or value
        if isinstance(value, cst.Call) and _OPTIMIZER.fullmatch(resolver.name(value.func)):
            name = source.code(value.func)
            return Finding(
                "GM108", f"{name} comes before the clip in the chain: it clips updates, not gradients.", "Put the clip first."
            )
    return None
