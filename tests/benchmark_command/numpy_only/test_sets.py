"""The gradient sets have the shapes of the models that they are named after."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sets import QUICK, SETS, arrays


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [
        ("mlp", 6, 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10),
        ("lora", 256, 256 * 16_384),
        ("vectors", 2000, 2000 * 256),
        ("resnet50", 161, 25_557_032),  # as torchvision counts its parameters
        ("gpt2", 148, 124_439_808),  # as transformers counts them; the output layer shares the embedding's weight
        ("tensor", 1, 2**26),
    ],
)
def test_the_sets(name: str, tensors: int, elements: int) -> None:
    assert (len(SETS[name].shapes), SETS[name].size) == (tensors, elements)


def test_shapes_of_resnet50() -> None:
    shapes = SETS["resnet50"].shapes
    assert shapes[:3] == ((64, 3, 7, 7), (64,), (64,))
    assert (256, 64, 1, 1) in shapes  # the shortcut of the first block
    assert shapes[-2:] == ((1000, 2048), (1000,))
    assert sum(len(shape) == 4 for shape in shapes) == 53


def test_arrays_have_the_shapes_and_one_content() -> None:
    for gradients in QUICK.values():
        made, again = list(arrays(gradients)), list(arrays(gradients))
        assert tuple(x.shape for x in made) == gradients.shapes
        assert all(np.array_equal(x, y) for x, y in zip(made, again, strict=True))
        assert {x.dtype for x in made} == {np.dtype(np.float32)}
    first, second = (x.ravel() for x in list(arrays(QUICK["vectors"]))[:2])
    assert not np.array_equal(first, second)
    assert np.std(next(arrays(QUICK["tensor"]))) == pytest.approx(0.01, rel=0.01)
