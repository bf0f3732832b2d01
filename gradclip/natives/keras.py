"""Keras: three keywords of every optimizer's constructor."""

from __future__ import annotations

from functools import partial

from gradclip.natives.model import Applied, Native

__all__ = ["CLASSES", "MODULES", "NATIVES"]

#: the modules that export the classes, in any version
MODULES = (
    "keras.optimizers",
    "tensorflow.keras.optimizers",
    "keras.optimizers.legacy",
    "keras.optimizers.experimental",
    "tensorflow.keras.optimizers.legacy",
    "tensorflow.keras.optimizers.experimental",
    "tensorflow.compat.v1.keras.optimizers",
    "tensorflow.compat.v2.keras.optimizers",
    "tensorflow.python.keras.optimizers",
    "tf_keras.optimizers",
    "tf_keras.optimizers.legacy",
)
#: every optimizer of Keras 3 and of earlier versions that clips
CLASSES = (
    "Optimizer",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Muon",
    "Nadam",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
)

_native = partial(
    Native,
    applied=Applied.KEYWORD,
    source="keras 3.15.1, keras/src/optimizers/base_optimizer.py",
    link="https://keras.io/api/optimizers/",
)
_UNCLIPPED, _ALL, _SEPARATE = "nothing is clipped", "every gradient becomes NaN", "they count separately, on TensorFlow"

_TENSORFLOW = {"sparse": "tensorflow", "summed-first": "tensorflow"}  #: departures that other backends do not have


def _names(keyword: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}({keyword}=)" for module in MODULES for name in CLASSES)


NATIVES = (
    _native(
        code="GK301",
        names=_names("clipnorm"),
        note="Each gradient by its own norm; standalone Keras up to 2.3.1 took one norm over all of them. 0 is off.",
        departs={"infinite-limit": _ALL, "negative-limit": _UNCLIPPED, "sparse": _SEPARATE},
        departs_also=(*("finite-norm", "wide-arithmetic", "unclipped", "dtypes", "integers", "dtype-kept", "summed-first"),),
        backends={**_TENSORFLOW, "integers": "torch jax", "dtype-kept": "jax"},
    ),
    _native(
        code="GK302",
        names=_names("global_clipnorm"),
        note="One norm over all gradients. 0 is off.",
        departs={
            "infinite-limit": _ALL,
            "negative-limit": _UNCLIPPED,
            "sparse": _SEPARATE,
            "twice": "it counts twice",
            "nothing-to-clip": "an error, on torch and JAX",
        },
        departs_also=(
            *("finite-norm", "wide-arithmetic", "unclipped", "dtypes", "any-number", "integers", "dtype-kept"),
            *("summed-first", "derivative"),
        ),
        backends={
            **_TENSORFLOW,
            "nothing-to-clip": "torch jax",
            "unclipped": "tensorflow jax",
            "any-number": "tensorflow",
            "dtype-kept": "jax",
        },
    ),
    _native(
        code="GK303",
        names=_names("clipvalue"),
        note="Each element between -clipvalue and clipvalue. 0 is off.",
        departs={"negative-limit": _UNCLIPPED, "sparse": "each is clipped separately, on TensorFlow; an error on torch"},
        departs_also=("dtypes", "summed-first"),
        backends={**_TENSORFLOW, "sparse": "tensorflow torch", "dtypes": "torch"},
    ),
)
