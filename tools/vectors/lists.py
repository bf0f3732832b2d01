"""Which vectors each operation has."""

from __future__ import annotations

from vectors.adapt import with_examples, with_parameters
from vectors.common import common
from vectors.recorded import recorded
from vectors.spec import Operation, Spec
from vectors.special import special
from vectors.values import by_value


def specs(operation: Operation) -> list[Spec]:
    if operation.by_value:
        return list(by_value(operation))
    shared = [*recorded(operation), *common(operation)]
    if operation.name == "optax.adaptive_grad_clip":
        shared = [with_parameters(spec) for spec in shared]
    if operation.name == "optax.per_example_global_norm_clip":
        shared = [with_examples(spec) for spec in shared]
    return [*shared, *special(operation)]
