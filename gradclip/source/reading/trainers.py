"""Classes that a library trains or calls: in which order it calls their methods, and where it makes its own backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gradclip.rounds import Backward, Clip, Step, Unscale, Zero
from gradclip.source.reading.gradients import is_optimizer_class
from gradclip.source.reading.machine import Machine, unknowns
from gradclip.source.reading.program import File, last
from gradclip.source.reading.scope import run
from gradclip.source.reading.values import Class, Constant, Instance, Library, Origin, Value

__all__ = ["beginnings", "made", "names"]


@dataclass(frozen=True, slots=True)
class _Trainer:
    """What trains a class: the hooks that it calls before its backward pass, after it, and after it has unscaled."""

    before: tuple[str, ...]
    scaled: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_LIGHTNING = _Trainer(("training_step",), ("on_after_backward",), ("on_before_optimizer_step", "configure_gradient_clipping"))
_HUGGING_FACE = _Trainer(("compute_loss",))
_HUBS = ("transformers.", "trl.")


def beginnings(file: File) -> Iterator[Callable[[Machine], object]]:
    """Those of classes that a library calls."""
    for cls in dict.fromkeys(cls for _, cls in file.functions if cls is not None and cls.bases):
        bases = {last(base) for base in cls.bases}
        if "LightningModule" in bases:
            yield _Trained(file, cls, _LIGHTNING)
        elif any(x.endswith("Trainer") for x in bases) and any(x in file.text for x in ("transformers", "trl")):
            yield _Trained(file, cls, _HUGGING_FACE)
        elif "Callback" in bases and "keras" in file.text:
            yield _Called(file, cls)
        elif bases & {"Model", "Sequential"} and "keras" in file.text and "backward" in file.called:
            yield _Fitted(file, cls)
        if file.is_of_keras_3 and re.search(r"(?<!super\(\))\.get_gradients\(", file.text) is None:
            yield _Unread(file, cls)


@dataclass(frozen=True, slots=True)
class _Trained:
    """A class, as its trainer calls it."""

    file: File
    cls: ast.ClassDef
    by: _Trainer

    def __call__(self, machine: Machine) -> object:
        cls = _class(machine, self.file, self.cls)
        if cls is None or (self.by is _HUGGING_FACE and not _is_from(machine, self.cls, _HUBS)):
            return None
        owner = made(machine, cls, self.cls)
        flag = machine.attribute(owner, "automatic_optimization")
        machine.events.clear()
        if isinstance(flag, Constant) and not flag.value:
            machine.hook(owner, "configure_gradient_clipping")  # Lightning never calls it here
            machine.events = [replace(x, is_unread=True) if isinstance(x, Clip) else x for x in machine.events]
        else:
            self._step(machine, owner)
        return None

    def _step(self, machine: Machine, owner: Instance) -> None:
        for name in self.by.before:
            machine.hook(owner, name)
        if any(isinstance(x, Backward) for x in machine.events):
            return
        where = self.cls.name
        machine.emit(Zero(text="the trainer's `zero_grad()`", where=where))
        machine.emit(Backward(text="The trainer's backward pass", where=where, scaler=machine.file.scales))
        for name in self.by.scaled:
            machine.hook(owner, name)
        machine.emit(Unscale(text="the trainer", where=where))
        for name in self.by.after:
            machine.hook(owner, name)
        machine.emit(Step(text="the trainer's step", where=where, optimizer=where))


def _is_from(machine: Machine, node: ast.ClassDef, modules: tuple[str, ...]) -> bool:
    """Whether a class is made from one of a library."""
    found = (machine.value(base) for base in node.bases)
    return any(isinstance(x, Library) and x.name.startswith(modules) for x in found)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A model of Keras on PyTorch, whose ``fit`` calls its ``train_step`` for each batch."""

    file: File
    cls: ast.ClassDef

    def __call__(self, machine: Machine) -> object:
        cls = _class(machine, self.file, self.cls)
        if cls is not None and _is_from(machine, self.cls, ("keras.", "tensorflow.")):
            owner = made(machine, cls, self.cls)
            machine.events.clear()
            for number in range(2):
                machine.passes.append(number)
                machine.hook(owner, "train_step")
                machine.passes.pop()
        return None


@dataclass(frozen=True, slots=True)
class _Called:
    """A callback of Keras, which gets no gradients."""

    file: File
    cls: ast.ClassDef

    def __call__(self, machine: Machine) -> object:
        cls = _class(machine, self.file, self.cls)
        if cls is None or not _is_from(machine, self.cls, ("keras.", "tensorflow.")):
            return None
        owner = made(machine, cls, self.cls)
        machine.is_callback = True
        for x in self.cls.body:
            if isinstance(x, ast.FunctionDef) and x.name.startswith("on_"):
                machine.hook(owner, x.name)
        taken = {id(x) for events in machine.taken for x in events}
        clips = [made.history[-1] for made in machine.changes]
        why = "A callback of Keras gets no gradients: fit() has made its step, or makes it from others."
        unread = [replace(x, unread=why) for x in clips if isinstance(x, Clip) and id(x) not in taken]
        machine.taken.extend((x,) for x in unread)
        machine.changes.clear()
        return None


@dataclass(frozen=True, slots=True)
class _Unread:
    """An optimizer for Keras 3 with a method that older ones called."""

    file: File
    cls: ast.ClassDef

    def __call__(self, machine: Machine) -> object:
        cls = _class(machine, self.file, self.cls)
        if cls is None or not any(is_optimizer_class(ast.unparse(x)) for x in self.cls.bases):
            return None
        machine.hook(made(machine, cls, self.cls), "get_gradients")
        clips = [x for made in machine.changes for x in made.history if isinstance(x, Clip)]
        why = "Nothing calls `get_gradients`: an optimizer of Keras 3 gets its gradients in `apply`."
        machine.taken.extend((replace(x, unread=why),) for x in clips)
        machine.changes.clear()
        return None


def _class(machine: Machine, file: File, node: ast.ClassDef) -> Class | None:
    """A class of a module, after its simple statements have run."""
    machine.scope.names.update(names(file))
    found = machine.scope.find(node.name, machine)
    return found if isinstance(found, Class) else None


def names(file: File) -> dict[str, Value]:
    """The names of a module, after its simple statements have run."""
    if not file.names:
        machine = Machine(file, {}, 0)
        run(machine, machine.main)
        file.names = machine.main.names
    return dict(file.names)


def made(machine: Machine, cls: Class, node: ast.ClassDef) -> Instance:
    """An object of a class, as the class makes it, from unknown arguments."""
    owner = Instance((Origin("self", id(node)),), of=cls)
    file = machine.file
    if node.name not in file.fields:
        init = machine.method(owner, "__init__")
        if init is not None:
            machine.enter(init, (), unknowns(init.node, is_method=True), node, owner)
        file.fields[node.name] = owner.fields
    owner.fields = dict(file.fields[node.name])
    return owner
