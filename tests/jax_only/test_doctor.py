"""``gradclip doctor`` on links within links of optax."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import launched
import pytest
import watched
import xla_flags

from gradclip.commands import cli


def test_the_end_shows_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """The last step ends the script from within JAX's callback, which JAX would log as a failure."""
    status = cli.main(watched.command("jax", "right_own", "--steps", "3"))
    out = capfd.readouterr()
    assert status == 0
    assert "3 steps, 3 clips, 0 findings" in out.out
    assert "Traceback" not in out.out + out.err


ON_TWO_DEVICES = """
import itertools
import jax
import jax.numpy as jnp
import optax

chain = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))

def step(w, state, x):
    gradients = jax.lax.pmean(jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), "devices")
    updates, state = chain.update(gradients, state)
    return optax.apply_updates(w, updates), state

w, state = jax.tree.map(lambda x: jnp.stack([x, x]), (jnp.ones(4), chain.init(jnp.ones(4))))
for k in NUMBERS:
    w, state = jax.pmap(step, axis_name="devices")(w, state, jax.random.normal(jax.random.key(k), (2, 8, 4)))
"""


# a device calls back some steps later: only a script without an end is stopped in each run
@pytest.mark.parametrize(("numbers", "how", "count"), [("itertools.count()", "stopped", 20), ("range(7)", "ended", 7)])
def test_a_script_with_pmap(numbers: str, how: str, count: int, tmp_path: Path) -> None:
    """A step on two devices is one. A device that still ran when the script was stopped aborted three runs of ten.

    In a process of its own: XLA has read its options here, and has one device.
    """
    path = watched.written(tmp_path, "jax", ON_TWO_DEVICES.replace("NUMBERS", numbers))
    options = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": xla_flags.of_devices(2)}
    done = launched.start("gradclip", "doctor", str(path), "--steps", "20", "--json", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    if how == "ended" and jax.__version_info__ < (0, 10):
        count *= 2  # as docs/versions.md says
    assert (told["ended"], told["steps"]) == (how, count), told


MADE_IN_EACH_UPDATE = """
import optax
import on_jax
from jax import disable_jit

@optax.inject_hyperparams
def make(learning_rate):
    return optax.chain(optax.clip_by_global_norm(3.0), optax.adam(learning_rate))

with disable_jit():
    on_jax.train(make(learning_rate=0.01))
"""


def test_an_optimizer_without_a_chain_has_its_name() -> None:
    (finding,) = watched.ran("jax", "alone").report["findings"]
    assert finding["text"] == "adam stepped its parameters, and no clip came before"


def test_an_optimizer_that_is_made_in_each_update_is_one(tmp_path: Path) -> None:
    told = watched.told(watched.written(tmp_path, "jax", MADE_IN_EACH_UPDATE), "--steps", "7")
    assert (told.status, told.report["ended"], told.report["steps"]) == (0, "ended", 6)


NESTED = """
import optax
from on_jax import train

from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch

CLIP = optax.clip_by_global_norm(3.0)
OWN = gradient_transformation(torch.clip_grad_norm(3.0))
LABELS, MASK = {"w": "a", "b": "b"}, {"w": True, "b": False}
state = train(OPTIMIZER)
CHECK
"""
#: an optimizer, and what the doctor finds in it
WRAPPED = {
    "a chain without a clip in a chain with one": (
        "optax.chain(optax.chain(optax.scale(1.0), optax.add_decayed_weights(0.1)), CLIP, optax.adam(0.01))",
        set(),
    ),
    "a clip in a chain in a chain": ("optax.chain(optax.chain(CLIP, optax.scale(1.0)), optax.adam(0.01))", set()),
    "an optimizer in a chain in a chain": ("optax.chain(CLIP, optax.chain(optax.scale_by_adam(), optax.scale(-0.01)))", set()),
    "no clip in two chains": ("optax.chain(optax.chain(optax.scale(1.0)), optax.adam(0.01))", {"GD101"}),
    "a clip after the optimizer of an inner chain": ("optax.chain(optax.chain(optax.adam(0.01)), CLIP)", {"GM108"}),
    "Adafactor's limit of updates": ("optax.chain(CLIP, optax.scale_by_adam(), optax.clip_by_block_rms(1.0))", set()),
    "gradclip's link in a chain in a chain": ("optax.chain(optax.chain(OWN), optax.chain(optax.adam(0.01)))", set()),
    "a mask": ("optax.chain(optax.masked(CLIP, MASK), optax.sgd(0.01))", set()),
    "a mask around gradclip's link": ("optax.chain(optax.masked(OWN, MASK), optax.sgd(0.01))", set()),
    "a mask around a decay": (
        "optax.chain(CLIP, optax.masked(optax.add_decayed_weights(0.1), MASK), optax.sgd(0.01))",
        set(),
    ),
    "names": ("optax.named_chain(('clip', CLIP), ('adam', optax.adam(0.01)))", set()),
    "a part with a clip": (
        "optax.multi_transform({'a': optax.chain(CLIP, optax.adam(0.01)), 'b': optax.sgd(0.01)}, LABELS)",
        set(),
    ),
    "parts with one limit": (
        "optax.multi_transform({k: optax.chain(CLIP, optax.adam(0.01)) for k in 'ab'}, LABELS)",
        {"GM135"},
    ),
    "parts with limits of their own": (
        "optax.multi_transform({'a': optax.chain(CLIP, optax.adam(0.01)),"
        " 'b': optax.chain(optax.clip_by_global_norm(7.0), optax.adam(0.01))}, LABELS)",
        set(),
    ),
    "a clip before the parts": (
        "optax.chain(CLIP, optax.multi_transform({'a': optax.adam(0.01), 'b': optax.sgd(0.01)}, LABELS))",
        set(),
    ),
    "a clip after the optimizer of its part": (
        "optax.multi_transform({'a': optax.chain(optax.adam(0.01), CLIP), 'b': optax.sgd(0.01)}, LABELS)",
        {"GM108"},
    ),
    "injected numbers": (
        "optax.chain(optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=3.0),"
        " optax.inject_hyperparams(optax.adam)(learning_rate=0.01))",
        set(),
    ),
    "accumulation around": ("optax.MultiSteps(optax.chain(CLIP, optax.adam(0.01)), 1)", set()),
    "accumulation within": (
        "optax.chain(CLIP, optax.MultiSteps(optax.chain(optax.scale(1.0), optax.adam(0.01)), 2).gradient_transformation())",
        {"GM119"},
    ),
    "a condition around a chain": (
        "optax.chain(optax.apply_if_finite(optax.chain(CLIP, optax.scale(1.0)), 3), optax.sgd(0.01))",
        set(),
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_links_within_links(name: str, tmp_path: Path) -> None:
    optimizer, found = WRAPPED[name]
    check = "assert state[1].hyperparams.keys() == {'learning_rate', 'b1', 'b2', 'eps', 'eps_root'}" if "inject" in name else ""
    path = watched.written(tmp_path, "jax", NESTED.replace("OPTIMIZER", optimizer).replace("CHECK", check))
    told = watched.told(path, "--steps", "7")
    steps = 3 if "GM119" in found else 6
    assert (told.report["ended"], told.report["steps"]) == ("ended", steps), told.report["said"]
    assert {code for code, _ in told.found} - {"GD301"} == found, told.report  # an update is far smaller than a gradient


@pytest.mark.parametrize("name", ["right_own_function", "right_own_eagerly"])
def test_a_clip_before_the_optimizer_is_its_first_link(name: str) -> None:
    report = watched.ran("jax", name).report
    assert (len(report["norms"]), report["unwatched"]) == (6, [])
    assert " · gradclip torch.clip_grad_norm " in report["timeline"]
