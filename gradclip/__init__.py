"""Gradient clipping: one definition of the mathematics, every framework's semantics, on every framework's tensors."""

from gradclip.backend import Backend
from gradclip.clip import clip, clip_, norm, scale_by_norm, scale_by_norm_
from gradclip.registry import register
from gradclip.rule import ClipResult, Rule, Scope

__all__ = ["Backend", "ClipResult", "Rule", "Scope", "clip", "clip_", "norm", "register", "scale_by_norm", "scale_by_norm_"]
