"""Paddle's ``(parameter, gradient)`` pairs, and tensors that stand for the gradient that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.core.containers import Containers, wanted

__all__ = ["PaddleContainers"]


def _is_parameter(x: object) -> bool:
    """Whether this is a parameter, also of a static program, or another leaf that requires a gradient."""
    if isinstance(x, versions.Value):
        operation = x.get_defining_op()
        return operation is not None and operation.name() == "builtin.parameter"
    if isinstance(x, versions.Parameter):
        return True
    # a ``.grad`` is a leaf with stop_gradient=False too, but holds no gradient itself
    return isinstance(x, paddle.Tensor) and x.is_leaf and not x.stop_gradient and versions.grad_of(x) is not None


class PaddleContainers(Containers):
    """Lists of pairs, as optimizers and ``append_backward`` make them; with ``need_clip`` False a gradient stays as it is."""

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        if _are_pairs(tree):
            yield from ((f"{path}[{i}][1]", tree[i][1]) for i, is_wanted in enumerate(wanted(tree)) if is_wanted)
        else:
            yield from super().walk(tree, path)

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        if not _are_pairs(tree):
            return super().flatten(tree)

        def rebuild(new: list[Any]) -> Any:
            gradients, pairs = iter(new), zip(tree, wanted(tree), strict=True)
            return type(tree)([type(pair)((pair[0], next(gradients) if is_wanted else pair[1])) for pair, is_wanted in pairs])

        return [gradient for _, gradient in self.walk(tree)], rebuild

    def is_param(self, x: Any) -> bool:
        return _is_parameter(x)

    def gradient(self, param: Any) -> Any:
        gradient = None if isinstance(param, versions.Value) else versions.grad_of(param)
        if gradient is None or gradient.stop_gradient or not gradient.is_leaf:
            return gradient  # only a gradient of create_graph=True has a history
        return gradient.detach()  # any other gradient claims to require one, as if it were an input

    def params(self, tree: Any) -> list[Any] | None:
        return [parameter for parameter, _ in compress(tree, wanted(tree))] if _are_pairs(tree) else None


def _are_pairs(tree: Any) -> bool:
    several = isinstance(tree, (list, tuple)) and bool(tree)
    return several and all(type(x) in (tuple, list) and [*map(_is_parameter, x)] == [True, False] for x in tree)
