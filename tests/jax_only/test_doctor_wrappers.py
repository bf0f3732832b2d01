"""``gradclip doctor`` on objects of a user's own as links of optax: a script gets the same numbers, types and states."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
from pathlib import Path
from typing import Any

import optax

from gradclip.commands import cli
from gradclip.doctor import program

SCRIPT = """
import dataclasses, functools, warnings
from typing import Any, Callable, NamedTuple
import jax, jax.numpy as jnp, optax

warnings.simplefilter("ignore", DeprecationWarning)  # of a wrapper that has a successor
clip = optax.clip_by_global_norm(0.5)
update = lambda u, s, p=None: (jax.tree.map(lambda g: -0.01 * g, u), s)
init = lambda p: ()

class Plain:
    init = staticmethod(init)
    def update(self, updates, state, params=None, **extra):
        assert not extra
        return update(updates, state)

class Slots:
    __slots__ = ("lr",)
    def init(self, params): return {"seen": jnp.zeros(())}
    def update(self, updates, state, params=None):
        return jax.tree.map(lambda g: -0.01 * g, updates), {"seen": state["seen"] + 1}

class Named(NamedTuple):
    init: Callable
    update: Callable
    note: str = "three fields"

@dataclasses.dataclass(frozen=True)
class Frozen:
    lr: float = 0.01
    def init(self, params): return ()
    def update(self, updates, state, params=None): return jax.tree.map(lambda g: -self.lr * g, updates), state
    def __call__(self): raise AssertionError

@jax.tree_util.register_pytree_node_class
class Tree:
    def __init__(self, lr): self.lr = lr
    def tree_flatten(self): return (self.lr,), None
    @classmethod
    def tree_unflatten(cls, aux, children): return cls(*children)
    def init(self, params): return self
    def update(self, updates, state, params=None): return jax.tree.map(lambda g: -state.lr * g, updates), state

class Own(optax.GradientTransformation):
    def update(self, updates, state, params=None): return jax.tree.map(lambda g: -0.01 * g, updates), state

class Extra:
    init = staticmethod(init)
    def update(self, updates, state, params=None, **extra): return update(updates, state)
    def __getattr__(self, name): raise AttributeError(name)

def wrapper(inner):
    def updated(updates, state, params=None):
        new, state = inner.update(updates, state, params)
        return jax.tree.map(lambda g: 0.5 * g, new), state
    return optax.GradientTransformation(inner.init, updated)

LINKS = {
    "class": Plain, "slots": Slots, "named": lambda: Named(init, update), "frozen": Frozen, "tree": lambda: Tree(0.01),
    "own": lambda: Own(init, None), "extra": Extra,
    "partial": lambda: optax.GradientTransformation(init, functools.partial(lambda k, u, s, p=None: update(u, s), 1)),
    "extra args": lambda: optax.GradientTransformationExtraArgs(init, lambda u, s, p=None, **extra: update(u, s)),
    "steps": lambda: optax.MultiSteps(optax.chain(optax.clip(1.0), optax.adam(0.01)), 2),
    "steps in a wrapper": lambda: wrapper(optax.MultiSteps(optax.adam(0.01), 2)),
    "wrappers": lambda: wrapper(wrapper(optax.chain(clip, optax.sgd(0.01)))),
    "schedule": lambda: optax.inject_hyperparams(optax.adam)(optax.linear_schedule(0.01, 0.0, 5)),
    "finite": lambda: optax.apply_if_finite(Plain(), 3),
    "masked": lambda: optax.masked(Slots(), {"w": True, "b": False}),
    "parts": lambda: optax.multi_transform({"w": Plain(), "b": optax.MultiSteps(optax.sgd(0.01), 2)}, {"w": "w", "b": "b"}),
    "chain": lambda: optax.named_chain(("plain", Plain()), ("slots", Slots())),
    "polyak": lambda: optax.chain(Plain(), optax.scale_by_polyak(1.0)),
    "lookahead": lambda: wrapper(optax.contrib.schedule_free_adamw(0.01)),
}
def scaled(x): return lambda rate: optax.chain(x, optax.scale(rate))

#: every public wrapper of optax, around a user's object and a chain with a clip in it; each is a link of a chain too
AROUND = {
    "MultiSteps": lambda x: optax.MultiSteps(x, 2),
    "MultiSteps, transformation": lambda x: optax.MultiSteps(x, 2).gradient_transformation(),
    "apply_if_finite": lambda x: optax.apply_if_finite(x, 3),
    "chain": lambda x: optax.chain(x),
    "named_chain": lambda x: optax.named_chain(("inner", x)),
    "conditionally_mask": lambda x: optax.conditionally_mask(x, lambda step, **extra: step < 2),
    "conditionally_transform": lambda x: optax.conditionally_transform(x, lambda step, **extra: step < 2),
    "maybe_update": lambda x: optax.maybe_update(x, lambda step: step < 2),
    "flatten": lambda x: optax.flatten(x),
    "inject_hyperparams": lambda x: optax.inject_hyperparams(scaled(x))(0.5),
    "inject_stateful_hyperparams": lambda x: optax.inject_stateful_hyperparams(scaled(x))(0.5),
    "masked": lambda x: optax.masked(x, {"w": True, "b": False}),
    "multi_transform": lambda x: optax.multi_transform({"x": x, "y": optax.sgd(0.01)}, {"w": "x", "b": "y"}),
    "partition": lambda x: optax.partition({"x": x, "y": optax.sgd(0.01)}, {"w": "x", "b": "y"}),
    "selective_transform": lambda x: optax.selective_transform(x, freeze_mask={"w": False, "b": True}),
    "with_extra_args_support": lambda x: optax.with_extra_args_support(x),
    "apply_every": lambda x: optax.chain(x, optax.apply_every(2)),
    "mechanize": lambda x: optax.contrib.mechanize(x),
    "schedule_free": lambda x: optax.contrib.schedule_free(x, 0.01),
    "split_real_and_imaginary": lambda x: optax.contrib.split_real_and_imaginary(x),
    "sam": lambda x: optax.contrib.sam(x, optax.chain(optax.contrib.normalize(), optax.sgd(0.05)), sync_period=2),
    "lookahead": lambda x: optax.lookahead(x, 2, 0.5),
    "galore": lambda x: optax.contrib.galore(0.01, base_optimizer=x),
    "scale_by_galore": lambda x: optax.contrib.scale_by_galore(2, base_optimizer=x),
}
#: newer than the oldest optax, or not for a part of the parameters
names = {**vars(optax), **vars(optax.contrib), "MultiSteps, transformation": 0}
INNER = {"a user's": Plain, "a clip's": lambda: optax.chain(clip, optax.sgd(0.01))}
for name, around in AROUND.items():
    for what, inner in INNER.items() if name in names else ():
        LINKS[f"{name} around {what}"] = functools.partial(lambda around, inner: around(inner()), around, inner)
for name, make in LINKS.items():
    link = make()
    assert type(make()) is type(link)
    tx = optax.chain(clip, link)
    assert type(tx) is optax.GradientTransformationExtraArgs
    params = {"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}
    if name.startswith("lookahead around"):
        params = optax.LookaheadParams.init_synced(params)
    state = tx.init(params)
    def loss(p): return jnp.mean((p["w"].sum(0) + p["b"] - 3) ** 2)
    for _ in range(3):
        value, grads = jax.value_and_grad(loss)(getattr(params, "fast", params))
        updates, state = tx.update(grads, state, params, value=value) if name == "polyak" else tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    print("FINAL", name, *(float(x).hex() for x in jax.tree.leaves(params) for x in x.ravel()), jax.tree.structure(state))
try:
    optax.chain(clip, "no link")
except AttributeError as error:
    print("FINAL", error)
assert float(optax.scale_gradient(jnp.ones(()), 2.0)) == 1.0
"""


def _final(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("FINAL")]


def test_any_object_with_init_and_update(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    alone, watched, out = io.StringIO(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(alone):
        assert program.run(str(path), (), False).how == "ended"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(watched):
        assert cli.main(["doctor", str(path), "--steps", "99", "--json"]) in (0, 1)
    report: dict[str, Any] = json.loads(out.getvalue())
    assert (report["ended"], report["fault"]) == ("ended", None), watched.getvalue()
    assert len(_final(alone.getvalue())) >= 60  # so many with the oldest optax
    assert _final(watched.getvalue()) == _final(alone.getvalue())
    # two of the three batches are one step
    updates = [1 if "MultiSteps, transformation" in line else 3 for line in _final(alone.getvalue())[:-1]]
    assert report["steps"] == sum(updates)


def test_every_public_wrapper_of_optax_is_tried() -> None:
    """A wrapper is a function with an argument for a transformation."""
    named = {"args", "base_optimizer", "fast_optimizer", "inner", "inner_factory", "opt", "optimizer", "transforms", "tx"}
    found = {
        name
        for module in (optax, optax.contrib, optax.transforms)
        for name, x in vars(module).items()
        if inspect.isfunction(x) and named & set(inspect.signature(x).parameters) and not name.startswith("_")
    }
    assert {name for name in found if f'"{name}' not in SCRIPT} == set()
    assert len(found) > 12
