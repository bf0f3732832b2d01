"""Keras: three keywords of every optimizer's constructor."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS", "CLASSES", "MODULES"]

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
_DOCS = "https://keras.io/api/optimizers/"
_SOURCE = "keras 3.15.1, keras/src/optimizers/base_optimizer.py"
_WRAPPER = "gradclip.backends.keras.clipped"
_OFF = "0 is off."


def _names(keyword: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}({keyword}=)" for module in MODULES for name in CLASSES)


def _gradclip(keyword: str, *, exact: bool) -> Target:
    return Target(
        f"gradclip.dialects.keras.{keyword}",
        {keyword: keyword},
        exact=exact,
        wrapper=_WRAPPER,
        note="clipped() wraps the optimizers of Keras 3, not those of tf.keras before 2.16 or of a legacy module.",
    )


APIS: tuple[Api, ...] = (
    Api(
        code="GK301",
        framework="keras",
        names=_names("clipnorm"),
        signature=signature("(*args, clipnorm=None, **kwargs)"),
        kind=Kind.KEYWORD,
        returns="an optimizer",
        nones="a variable without a gradient is left out",
        keyword="clipnorm",
        dialect="keras.clipnorm",
        targets={"gradclip": _gradclip("clipnorm", exact=False), **forms.tensor_norm("clipnorm", without="keras")},
        since=_SOURCE,
        note=f"Each gradient by its own norm; standalone Keras up to 2.3.1 took one norm over all of them. {_OFF}",
        link=_DOCS,
    ),
    Api(
        code="GK302",
        framework="keras",
        names=_names("global_clipnorm"),
        signature=signature("(*args, global_clipnorm=None, **kwargs)"),
        kind=Kind.KEYWORD,
        returns="an optimizer",
        nones="a variable without a gradient is left out",
        keyword="global_clipnorm",
        dialect="keras.global_clipnorm",
        targets={
            "gradclip": _gradclip("global_clipnorm", exact=False),
            **forms.global_norm("global_clipnorm", without="keras", nan_if_infinite=True),
        },
        since=_SOURCE,
        note=f"One norm over all gradients. {_OFF}",
        link=_DOCS,
    ),
    Api(
        code="GK303",
        framework="keras",
        names=_names("clipvalue"),
        signature=signature("(*args, clipvalue=None, **kwargs)"),
        kind=Kind.KEYWORD,
        returns="an optimizer",
        nones="a variable without a gradient is left out",
        keyword="clipvalue",
        dialect="keras.clipvalue",
        targets={
            "gradclip": _gradclip("clipvalue", exact=True),
            **{name: forms.ordinary(target) for name, target in forms.elementwise("clipvalue", without="keras").items()},
        },
        since=_SOURCE,
        note=f"Each element between -clipvalue and clipvalue. {_OFF}",
        link=_DOCS,
    ),
)
