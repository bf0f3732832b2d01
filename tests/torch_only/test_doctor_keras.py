"""``gradclip doctor`` where Keras steps what PyTorch's backward pass and its clip have made."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import watched


@pytest.mark.parametrize(("zero", "codes"), [("pass", ["GM132"]), ("model.zero_grad()", [])])
def test_a_pass_adds_to_what_keras_has_taken(zero: str, codes: list[str], tmp_path: Path) -> None:
    keras = pytest.importorskip("keras", reason="not in the environments of other versions")
    if keras.backend.backend() != "torch":
        pytest.skip("Keras on another backend: set KERAS_BACKEND=torch")
    script = f"""
        import keras, torch
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        for _ in range(6):
            {zero}
            model(torch.ones(8, 3)).pow(2).mean().backward()
            tensors = [x.value for x in model.trainable_weights]
            torch.nn.utils.clip_grad_norm_(tensors, 1.0)
            optimizer.apply([x.grad for x in tensors], model.trainable_weights)
        """
    told = watched.told(watched.written(tmp_path, "torch", textwrap.dedent(script)))
    assert [x["code"] for x in told.report["findings"]] == codes, told.report["findings"]
