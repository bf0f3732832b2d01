"""Keys of trainers' configurations: the codemod reports them and never rewrites them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.natives import NATIVES, Kind
from gradclip.source.bind import called, keyword, literal
from gradclip.source.found import Context, Decision, Finding, manual, unchanged
from gradclip.source.settings import KEYS, own_setting
from gradclip.source.source import last_name, words
from gradclip.source.traps.limits import clips_nothing

__all__ = ["CLIP_KEYWORDS", "KERAS", "argument", "attribute", "clips_keras", "entry"]

_NESTED = frozenset({"grad_clip", "clip_grad", "grad_clip_cfg"})  #: the value is a dictionary of settings, or unrelated
_CONFIGURATION = re.compile(r"(^|_)(config|cfg|hparams|hps|hp|conf|opts?|args)$|^(optim_wrapper|optimizer_config)$")
_OWN = re.compile(r"max_grad_norm|grad(ient)?_clip(_norm|ping|_val(ue)?)?|clip_grad(_norm)?|grad_norm_clip|clip_update_norm")
KERAS = {native.keyword: native for native in NATIVES if native.framework == "keras"}
_TRAINERS = re.compile(r"(Trainer|Arguments|Config|PPO\w*|A2C|TRPO|Learner|Args|DeepSpeed\w*)$")
_AGENTS = re.compile(r"(PPO\w*|A2C|TRPO)$")  #: names that many projects use, not only the libraries in the next line
_OF_AGENTS = frozenset({"ray", "sb3_contrib", "stable_baselines", "stable_baselines3", "tianshou", "trl"})
#: a key of a trainer's dictionary -> the libraries that read it, and other keys of theirs
_OF_LIBRARIES = {
    "max_grad_norm": (
        words("transformers trl accelerate peft ray stable_baselines3 sb3_contrib tianshou opacus sample_factory rsl_rl"),
        words("per_device_train_batch_size num_train_epochs output_dir lr_scheduler_type warmup_ratio deepspeed"),
    ),
    "gradient_clipping": (
        words("deepspeed accelerate"),
        words(
            "train_batch_size train_micro_batch_size_per_gpu zero_optimization fp16 bf16 zero_allow_untested_optimizer "
            "steps_per_print gradient_accumulation_steps wall_clock_breakdown"
        ),
    ),
}
_OF_TRAINERS = frozenset().union(*(libraries for libraries, _ in _OF_LIBRARIES.values()))
CLIP_KEYWORDS = frozenset(api.keyword for api in NATIVES if api.kind is Kind.KEYWORD)
_OPACUS = re.compile(r"make_private\w*|PrivacyEngine")


def argument(node: cst.Arg, context: Context) -> Iterator[Decision]:
    """Report ``Trainer(gradient_clip_val=0.5)``, ``TrainingArguments(max_grad_norm=1.0)`` and similar calls."""
    outer = context.source.parents.get(node)
    if not isinstance(outer, cst.Call):
        return
    call = called(outer)
    key, name = keyword(node), last_name(call.func)
    if literal(node.value) is None:
        yield unchanged(node, "GM003", f"`{key}=None` is off.")
    elif key in _NESTED:
        if _is_settings(node.value, context):
            yield _manual(node, key)
        elif key == "grad_clip" and name == "training" and "ray" in context.resolver.modules:
            reason = "RLlib's learner clips, as `grad_clip_by` says: by one norm, by a norm for each gradient, or by value."
            yield manual(node, Finding("GM505", reason, "Keep it: the learner knows when the gradients are ready."))
        elif key == "clip_grad" and "clip_mode" in map(keyword, call.args):
            reason = "timm's scaler unscales the gradients and clips them as its mode says."
            yield manual(node, Finding("GM505", reason, "Keep it: it clips between the unscaling and the step."))
    elif key == "max_grad_norm" and _OPACUS.fullmatch(name):
        reason = "By this value, Opacus clips the gradient of each example, not that of the batch."
        yield manual(node, Finding("GM502", reason, "Keep it: its privacy accounting assumes this clip."))
    elif key == "max_grad_norm" and any(n.startswith("apex.") for n in context.resolver.names(call.func).qualified):
        reason = "apex's optimizer clips by one norm over all gradients within its step."
        yield manual(node, Finding("GM505", reason, "Keep it: a clip in another place would read the gradients once more."))
    elif key == "max_grad_norm" and (not _TRAINERS.search(name) or _is_own_agent(call, context)):
        yield unchanged(node, "GM207", f"`{key}` goes to `{context.source.code(call.func)}`, which is the project's own.")
    elif key == "gradient_clipping" and _is_of_tf_agents(call, context):
        yield manual(
            node, Finding("GM505", "TF-Agents' agent clips its gradients, by this value.", "Keep it: its loss makes them.")
        )
    elif name == "dict" or key != "gradient_clipping" or _TRAINERS.search(name):
        own = _is_own(call, context)
        yield unchanged(node, "GM207", own_setting(key)) if own else _manual(node, key)


def _is_of_tf_agents(call: cst.Call, context: Context) -> bool:
    qualified = context.resolver.names(call.func).qualified
    return last_name(call.func).endswith("Agent") and any(name.startswith("tf_agents.") for name in qualified)


def _is_own(call: cst.Call, context: Context) -> bool:
    """Whether a class is the project's: this source defines it, or a relative import binds it."""
    names = context.resolver.names(call.func)
    defined = {one.name.value for one in context.source.all(cst.ClassDef)} if names.local else ()
    own = names.local and last_name(call.func) in defined and not _inherits(last_name(call.func), context)
    tops = {name.partition(".")[0] for name in names.qualified}  # "" of a relative import
    return own or (bool(tops) and tops <= (context.options.about.modules | {""}) - _OF_TRAINERS)


def _inherits(name: str, context: Context) -> bool:
    """Whether a class of the source extends one that it imports from elsewhere: ``class Arguments(TrainingArguments)``."""
    classes = [one for one in context.source.all(cst.ClassDef) if one.name.value == name]
    bases = [context.resolver.names(base.value) for one in classes for base in one.bases]
    return any(one.qualified and not all(n.startswith((".", "builtins.")) for n in one.qualified) for one in bases)


def _is_own_agent(call: cst.Call, context: Context) -> bool:
    """Whether ``PPO`` is a class of the project: the source imports it, and from none of the libraries."""
    qualified = context.resolver.names(call.func).qualified
    return bool(_AGENTS.search(last_name(call.func)) and qualified) and not any(
        name.partition(".")[0] in _OF_AGENTS for name in qualified
    )


def entry(node: cst.DictElement, context: Context) -> Iterator[Decision]:
    """Report ``{"gradient_clipping": 1.0}``, ``{"clipnorm": 1.0}``."""
    key = node.key.raw_value if isinstance(node.key, cst.SimpleString) else None
    if not isinstance(key, str) or literal(node.value) is None:
        return
    if key in KEYS and (key not in _NESTED or _is_settings(node.value, context)):
        own = _own(node, key, context) if key in _OF_LIBRARIES else ""
        yield unchanged(node, "GM207", own) if own else _manual(node, key)
    elif key == "clip_gradient" and "mxnet" in context.resolver.modules:
        yield manual(
            node, Finding("GM505", "MXNet's optimizer clamps each element by it.", "Keep it: gradclip does not support MXNet.")
        )
    elif key in KERAS:
        yield manual(node, clips_nothing(KERAS[key], node.value, context) or clips_keras(key))


def clips_keras(key: str) -> Finding:
    """What ``{"clipnorm": 1.0}`` and ``dict(clipnorm=1.0)`` do."""
    reason = f'"{key}" is a keyword of Keras\'s optimizers, in a configuration.'
    return Finding("GM504", reason, "Leave it out, and write: gradclip.clipped(optimizer, rule).")


def _own(node: cst.DictElement, key: str, context: Context) -> str:
    """Why only the project reads a key of a dictionary; "" if the dictionary may reach a trainer."""
    if last_name(node.value) == key:
        return f"This source receives `{key}` and passes it on."
    for subscript in context.source.all(cst.Subscript):
        index = subscript.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString) and index.value.raw_value == key:
            return f"This source reads `{key}` itself; the command migrates the place where it clips."
    holder = context.source.parents.get(node)
    elements = holder.elements if isinstance(holder, cst.Dict) else ()
    keys = {e.key.raw_value for e in elements if isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString)}
    libraries, others = _OF_LIBRARIES[key]
    if context.resolver.modules & libraries or keys & others:
        return ""
    statement = context.source.within(node, cst.SimpleStatementLine, cst.FunctionDef)
    shown = context.source.code(statement) if isinstance(statement, cst.SimpleStatementLine) else ""
    return "" if re.search(r"deepspeed|\bds_|Trainer|Arguments", shown) else f"Nothing shows that a trainer gets this `{key}`."


def attribute(node: cst.Attribute, context: Context) -> Iterator[Decision]:
    """Report ``cfg.SOLVER.CLIP_GRADIENTS.ENABLED = True``, ``optimizer.clipnorm = 1.0``, ``config.grad_clip_norm = 1.0``."""
    key = node.attr.value
    if key == "CLIP_GRADIENTS" and context.source.within(node, cst.AssignTarget) is not None:
        yield _manual(node, key)
    known = key in CLIP_KEYWORDS or _OWN.fullmatch(key) is not None
    value = context.resolver.value(node) if known else None
    if value is None:
        return
    if key in CLIP_KEYWORDS and last_name(node.value) == "self":
        return  # with `self.clipnorm = clipnorm` a class stores its argument
    written = context.source.code(node)
    if literal(value) is None:
        yield unchanged(node, "GM003", f"`{written} = None` is off.")
    elif key in CLIP_KEYWORDS:
        off = clips_nothing(KERAS[key], value, context) if key in KERAS else None
        reason = f"`{written}` makes an optimizer of Keras clip."
        yield manual(node, off or Finding("GM504", reason, "Leave it out, and write: gradclip.clipped(optimizer, rule)."))
    elif _is_settings(value, context):
        yield _manual(node, "grad_clip")
    elif _CONFIGURATION.search(last_name(node.value)):
        yield unchanged(node, "GM207", own_setting(key))


def _manual(node: cst.CSTNode, key: str) -> Decision:
    return manual(node, Finding(KEYS[key]))


def _is_settings(node: cst.BaseExpression, context: Context) -> bool:
    """Whether a value is like ``dict(max_norm=35, norm_type=2)``: configurations such as mmcv's pass it to torch's clip."""
    settings = isinstance(node, cst.Dict) or (isinstance(node, cst.Call) and last_name(node.func) == "dict")
    return settings and re.search(r"max_norm|clip_value|norm_type|type|clip_norm", context.source.code(node)) is not None
