"""Programs with a statement between the lines of a clip by hand: at each place of each form that can be rewritten."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from migrate import forms

__all__ = ["DISPROVED", "FRAMEWORKS", "HARMLESS", "Program", "changed", "harmless"]

#: statements that may change the norm N, a gradient of the collection T, or the list, or that let other code run
CHANGES = {
    "a reduction": "dist.all_reduce(N)",
    "an MPI buffer": "comm.Allreduce(MPI.IN_PLACE, N)",
    "a helper": "sync(N)",
    "a helper with a keyword": "sync(norm=N)",
    "a helper that returns": "ok = sync(N)",
    "a helper of another framework": 'xm.all_reduce("sum", [N])',
    "a reduction that returns too": "torch.distributed.nn.functional.all_reduce(N)",
    "an asynchronous reduction": "work = dist.all_reduce(N, async_op=True)\nwork.wait()",
    "a handle from before": "handle.wait()",
    "a method in place": "N.add_(1)",
    "a special method": "N.__imul__(2)",
    "a method of a communicator": "self.comm.reduce(N)",
    "a method without the norm": "self.sync_gradients()",
    "a function without arguments": "sync()",
    "a product in place": "N *= 2",
    "a sum in place": "N += 1",
    "a store": "N[...] = 0",
    "a store of data": "N.data = extra",
    "a deletion": "del N",
    "out=": "np.add(N, 1, out=N)",
    "a third argument": "np.multiply(N, 2, N)",
    "a second argument": "np.sqrt(N, N)",
    "a copy": "np.copyto(N, 0)",
    "foreach": "torch._foreach_mul_([N], 2)",
    "an operator": "operator.imul(N, 2)",
    "an alias": "other = N\nother.mul_(2)",
    "an alias that is multiplied": "other = N\nother *= 2",
    "an attribute": "self.norm = N\nself.norm.mul_(2)",
    "a list with the norm": "pack = [N]\npack[0] *= 2",
    "a dictionary": 'pack = {"norm": N}\nsync(pack)',
    "a walrus": "(other := N).mul_(2)",
    "a walrus of its name": "print(N := 0)",
    "another value": "N = sync(N)",
    "a number": "N = 0.5",
    "a variable of a loop": "for N in [1.0]:\n    pass",
    "a closure that binds": "def bind():\n    nonlocal N\n    N = 0\nbind()",
    "a closure": "def bind():\n    N.mul_(2)\nbind()",
    "a lambda": "(lambda: sync(N))()",
    "a map": "list(map(sync, [N]))",
    "a comprehension": "[sync(one) for one in [N]]",
    "an argument of print": "print(sync(N))",
    "a formatted string": 'x = f"{sync(N)}"',
    "an argument of a log": 'logger.info("%s", sync(N))',
    "a test": "if sync(N):\n    pass",
    "a branch": "if flag:\n    dist.all_reduce(N)",
    "an else": "if flag:\n    pass\nelse:\n    dist.all_reduce(N)",
    "a loop": "while sync(N):\n    pass",
    "an assertion": "assert sync(N)",
    "a try": "try:\n    dist.all_reduce(N)\nexcept RuntimeError:\n    pass",
    "a finally": "try:\n    pass\nfinally:\n    sync(N)",
    "a with": "with reduced(N):\n    pass",
    "a with for the norm": "with reduced() as N:\n    pass",
    "a match": "match flag:\n    case 1:\n        sync(N)",
    "a class": "class Inner:\n    sync(N)",
    "a decorator": "@sync\ndef inner():\n    pass",
    "a default": "def inner(x=sync(N)):\n    pass",
    "exec": 'exec("N.mul_(2)")',
    "eval": 'eval("sync(N)")',
    "getattr": 'getattr(dist, "all_reduce")(N)',
    "a name for a function": "reduce = dist.all_reduce\nreduce(N)",
    "a partial function": "functools.partial(sync, N)()",
    "a yield": "yield N",
    "a yield of nothing": "yield",
    "an await": "await sync()",
    "a gradient in place": "T[0].grad.zero_()",
    "a gradient": "T[0].grad = None",
    "an element": "T[0] = T[0] * 2",
    "an element in place": "T[0] *= 2",
    "a gradient by its name": 'setattr(T[0], "grad", None)',
    "a list that grows": "T.append(extra)",
    "a list that grows by +=": "T += extra",
    "a set that grows": "T.add(extra)",
    "a set that grows by another name": "others = T\nothers.add(extra)",
    "a list that shrinks": "T.pop()",
    "a deleted element": "del T[0]",
    "other gradients": "T = T[1:]",
    "noise": "add_noise(T)",
    "noise in a loop": "for one in T:\n    sync(one)",
    "an alias of the list": "others = T\nothers.append(extra)",
    "a hook": "T[0].register_hook(hook)",
    "a key of a sort": "sorted(T, key=sync)",
    "another clip": "optimizer.clip_gradients(T, 1.0)",
    "a backward pass": "loss.backward()",
    "a scaler": "scaler.unscale_(optimizer)",
    "an optimizer": "optimizer.synchronize()",
    "a step": "optimizer.step()",
}
#: the same for arrays that never change: a call changes neither their norm nor them
OF_ARRAYS = (
    *("a product in place", "a sum in place", "a deletion", "another value", "a number", "a variable of a loop"),
    *(
        "a closure that binds",
        "a with",
        "a with for the norm",
        "exec",
        "a yield",
        "an await",
        "an element",
        "a list that grows",
    ),
    *(
        "a list that shrinks",
        "a deleted element",
        "other gradients",
        "noise",
        "an alias of the list",
        "a match",
        "a walrus of its name",
    ),
)
DISPROVED = ("a number", "a walrus of its name")  #: the divisor is a number then: surely no clip by norm
HARMLESS = {
    "print": "print(N)",
    "a formatted string": 'print(f"norm {N:.3f}")',
    "a number": "size = float(N)",
    "a log": 'logging.info("norm %s", N)',
    "a logger": 'logger.info("norm %s", float(N))',
    "a writer": 'writer.add_scalar("norm", float(N), 1)',
    "a history": "history.append(float(N))",
    "a dictionary": 'stats["norm"] = float(N)',
    "a name": "count = len(T)",
    "a comparison": "large = N > 5",
    "a count": "steps = 0\nsteps += 1",
    "an attribute": "stats.norm = float(N)",
    "an assertion": "assert N >= 0",
    "a test": 'if N > 1e9:\n    print("large")',
    "an error": "if not math.isfinite(float(N)):\n    raise ValueError(N)",
    "a return": "if not math.isfinite(float(N)):\n    return None",
    "a loop": "for i in range(3):\n    print(i)",
    "a string": '"the norm"',
    "nothing": "pass",
    "a function": "def helper(x):\n    return x + 1",
    "an import": "import time\nstarted = time.time()",
    "a try": "try:\n    print(N)\nexcept ValueError:\n    pass",
    "a minimum": "least = min(float(N), 3)",
    "an unrelated deletion": "unrelated = 1\ndel unrelated",
}
_HEADER = "import functools\nimport logging\nimport math\nimport operator\n\nimport numpy as np\n"
FRAMEWORKS = {
    "numpy": ("", "grads", forms.NUMPY_NORMS, forms.NUMPY_SCALES),
    "torch": ("import torch\nimport torch.distributed as dist\n", "params", forms.TORCH_NORMS, forms.TORCH_SCALES),
    "paddle": ("import paddle\nimport paddle.distributed as dist\n", "grads", forms.PADDLE_NORMS, forms.PADDLE_SCALES),
    "jax": (
        f"import jax\nimport jax.numpy as jnp\nimport optax\n\n\n{forms.TREE_NORM}\n",
        "grads",
        forms.JAX_NORMS,
        forms.JAX_SCALES,
    ),
    "tensorflow": ("import tensorflow as tf\n", "grads", forms.TENSORFLOW_NORMS, forms.TENSORFLOW_SCALES),
}


@dataclass(frozen=True, slots=True)
class Program:
    """A clip by hand, and a statement at one place in it."""

    framework: str
    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.framework}, {self.kind}\n{self.source}"


def changed(name: str) -> Iterator[Program]:
    """Each statement that may change something, at one place after another of one form after another of a framework."""
    arrays = name in ("jax", "tensorflow")
    _, _, norms, scales = FRAMEWORKS[name]
    chosen = itertools.cycle(itertools.product(norms, scales))
    places = itertools.cycle(range(1, 6))
    for kind in OF_ARRAYS * 2 if arrays else tuple(CHANGES):
        norm, scale = next(chosen)
        lines = f"{norms[norm]}\n{scales[scale]}".splitlines()
        last = max(number for number, line in enumerate(lines) if re.search(r"\b(limit|c|d)\b", line))
        yield _program(name, kind, CHANGES[kind], lines, 1 + next(places) % last)


def harmless(name: str) -> Iterator[Program]:
    """Each harmless statement between the norm and the scaling, for one form after another."""
    _, _, norms, scales = FRAMEWORKS[name]
    chosen = itertools.cycle(zip(norms, itertools.cycle(scales), strict=False))
    for kind, statement in HARMLESS.items():
        norm, scale = next(chosen)
        before, after = norms[norm].splitlines(), scales[scale].splitlines()
        yield _program(name, kind, statement, before + after, len(before))


def _program(name: str, kind: str, statement: str, lines: list[str], at: int) -> Program:
    header, tensors, _, _ = FRAMEWORKS[name]
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    added = textwrap.indent(_named(statement, tensors), indent).splitlines()
    body = textwrap.indent("\n".join([*lines[:at], *added, *lines[at:]]), "    ")
    start = "async def" if "await" in statement else "def"
    return Program(name, kind, f"{_HEADER}{header}\n\n{start} clip({tensors}, limit):\n{body}\n")


def _named(statement: str, tensors: str) -> str:
    return re.sub(r"\bT\b", tensors, re.sub(r"\bN\b", "n", statement))
