"""Which vectors each operation has."""

from __future__ import annotations

from gradclip.rule import Scope
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
    if operation.native.rule().relative_to is not None:
        shared = [with_parameters(spec) for spec in shared]
    if operation.native.rule().scope is Scope.EXAMPLE:
        shared = [with_examples(spec) for spec in shared]
    return [*shared, *special(operation)]
