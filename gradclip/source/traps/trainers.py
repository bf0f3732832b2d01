"""GM121: a limit that nothing reads; and the trainers that clip beside a clip by hand (GM120)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.source.bind import keyword, keywords, literal, number
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import first_of, maker
from gradclip.source.source import Source, last_name, once, receiver, words

__all__ = ["LIGHTNING", "ignored", "is_manual", "is_module", "that_clips"]

LIGHTNING = re.compile(r"(pytorch_lightning|lightning)(\.\w+)*\.(LightningModule|Trainer)")
_HUGGING_FACE = re.compile(r"(transformers|trl)(\.\w+)*\.\w*Trainer")
_HOOKS = words("training_step on_after_backward on_before_optimizer_step optimizer_step")
_ACCELERATOR = re.compile(r"accelerate(\.\w+)*\.Accelerator")
_PLUGIN = re.compile(r"accelerate(\.\w+)*\.DeepSpeedPlugin")


def that_clips(found: ApiCall) -> str:
    """The trainer that clips the same gradients later, in words; "" if there is none."""
    return _of_the_class(found) or _deepspeed(found)


def _of_the_class(found: ApiCall) -> str:
    context, source = found.context, found.context.source
    owner, method = source.within(found.call, cst.ClassDef), source.within(found.call, cst.FunctionDef)
    if owner is None or method is None or method.name.value not in _HOOKS:
        return ""
    bases = [context.resolver.name(base.value) for base in owner.bases]
    if any(_HUGGING_FACE.fullmatch(base) for base in bases) and method.name.value == "training_step":
        settings = _settings("max_grad_norm", source)
        if any(not number(value) for value in settings):
            return ""  # it is switched off, or cannot be read
        limit = source.one_line(settings[0]) if settings else "1.0, its default"
        return f"Hugging Face's Trainer clips by max_grad_norm={limit}"
    if is_module(owner, context) and not is_manual(owner, source):
        for argument in _of_lightning(context):
            return f"Lightning's Trainer clips by {source.one_line(argument)}"
    return ""


def _settings(name: str, source: Source) -> list[cst.BaseExpression]:
    """The values that a source gives to a setting: as a keyword, as an attribute."""
    found = [argument.value for argument in source.all(cst.Arg) if keyword(argument) == name]
    for target in source.all(cst.AssignTarget):
        statement = source.parents[target]
        if last_name(target.target) == name and isinstance(statement, cst.Assign):
            found.append(statement.value)
    return found


@once
def _of_lightning(context: Context) -> list[cst.Arg]:
    """``gradient_clip_val=1.0`` of ``Trainer(...)``."""
    made = context.source.calls.get("Trainer", ())
    calls = (call for call in made if LIGHTNING.fullmatch(context.resolver.name(call.func)))
    return [one for call in calls for one in call.args if keyword(one) == "gradient_clip_val" and number(one.value)]


def is_module(owner: cst.ClassDef, context: Context) -> bool:
    """Whether a class is a ``LightningModule``."""
    return any(LIGHTNING.fullmatch(context.resolver.name(base.value)) for base in owner.bases)


def is_manual(owner: cst.ClassDef, source: Source) -> bool:
    """Whether a class sets ``self.automatic_optimization = False``, or has a property of this name."""
    for node in source.named.get("automatic_optimization", ()):
        if owner in source.ancestors(node):
            statement = source.within(node, cst.Assign)
            if statement is None or literal(statement.value) is not True:
                return True
    return False


def _deepspeed(found: ApiCall) -> str:
    """A step of DeepSpeed's engine after the clip, with ``"gradient_clipping"`` in its configuration."""
    context, source = found.context, found.context.source
    if "deepspeed" not in context.resolver.modules:
        return ""
    of = _engine(found)
    made = first_of(of, context) if of is not None else None
    if made is None or context.resolver.name(made.func) != "deepspeed.initialize":
        return ""
    for element in source.all(cst.DictElement):
        if literal(element.key) == "gradient_clipping" and number(element.value):
            return f"DeepSpeed's engine clips by {source.one_line(element)}"
    return ""


def _engine(found: ApiCall) -> cst.BaseExpression | None:
    """The object of the next ``engine.step()``, which has no name of an optimizer."""
    source = found.context.source
    end = source.end(found.call)
    calls = (call for call in source.calls.get("step", ()) if source.function(call) is source.function(found.call))
    after = sorted((call for call in calls if source.start(call) > end), key=source.start)
    return receiver(after[0]) if after else None


# ---- limits that nothing reads -------------------------------------------------------------------------------------------


def ignored(context: Context) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """The places of limits that nothing reads."""
    yield from _manual_optimization(context)
    yield from _under_deepspeed(context)


def _manual_optimization(context: Context) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """``Trainer(gradient_clip_val=1.0)``, and every module of the source optimizes by hand."""
    source, arguments = context.source, _of_lightning(context)
    if not arguments:
        return
    modules = [owner for owner in source.all(cst.ClassDef) if is_module(owner, context)]
    if modules and all(is_manual(module, source) for module in modules):
        name = modules[-1].name.value
        reason = f"`{name}` optimizes by hand (automatic_optimization is off), and Lightning then refuses to clip."
        advice = "Remove it, and call self.clip_gradients(optimizer, gradient_clip_val=...) before each step."
        for argument in arguments:
            yield argument, Finding("GM121", reason, advice)


def _under_deepspeed(context: Context) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """``accelerator.clip_grad_norm_`` under DeepSpeed, which clips by the limit of its plugin."""
    for call in context.source.calls.get("clip_grad_norm_", ()):
        made = maker(receiver(call), context)
        if made is None or not _ACCELERATOR.fullmatch(context.resolver.name(made.func)):
            continue
        given = keywords(made)
        plugin = maker(given["deepspeed_plugin"], context) if "deepspeed_plugin" in given else None
        if plugin is None or not _PLUGIN.fullmatch(context.resolver.name(plugin.func)) or any(a.star for a in plugin.args):
            continue
        names = {*keywords(plugin)}
        if names.isdisjoint({"gradient_clipping", "hf_ds_config"}):
            reason = "Under DeepSpeed Accelerate ignores this limit: the engine clips by gradient_clipping of its plugin."
            yield call, Finding("GM121", reason, "Write: DeepSpeedPlugin(gradient_clipping=...).")
