"""The vectors of every norm function in the forms that two of optax's functions take: with parameters, and with examples."""

from __future__ import annotations

import math
from dataclasses import replace

from gradclip.conformance.array import COMPLEX, FLOATS
from gradclip.conformance.load import SameAs
from vectors.array import Array
from vectors.exact import INTEGERS
from vectors.formulas import RefusedError
from vectors.slices import slices, unit_axes
from vectors.spec import Also, Spec

_REFUSED = Also("An implementation may refuse gradients of integers.", error="dtype")


def with_parameters(spec: Spec) -> Spec:
    """Add parameters whose units all have the norm 1, so that ``clipping`` is the limit."""
    parameters: list[Array | None] = []
    for g in spec.gradients:
        parameters.append(parameters[g.place] if isinstance(g, SameAs) else None if g is None else parameter(g))
    return replace(spec, parameters=tuple(parameters))


def parameter(g: Array) -> Array:
    dtype = g.dtype if g.dtype in FLOATS or g.dtype in COMPLEX else "float32"
    one, zero = (complex(1), complex(0)) if dtype in COMPLEX else (1.0, 0.0)
    if g.filled:
        return Array(dtype, g.shape, (2.0 ** -round(math.log2(g.size) / 2),), filled=True)
    values = [zero] * g.size
    try:
        firsts = [places[0] for _, places in slices(g.shape, unit_axes(g.shape))]
    except RefusedError:  # more axes than units are defined for
        firsts = []
    for place in firsts:
        values[place] = one
    return Array(dtype, g.shape, tuple(values))


def with_examples(spec: Spec) -> Spec:
    """Make every gradient the gradient of one example."""
    gradients = [replace(g, shape=(1, *g.shape)) if isinstance(g, Array) and g.rows is None else g for g in spec.gradients]
    also = [a if a.gradients is None else replace(a, gradients=None) for a in spec.also]
    if any(isinstance(g, Array) and g.dtype in INTEGERS for g in gradients):
        also.append(_REFUSED)
    return replace(spec, gradients=gradients, also=tuple(also))
