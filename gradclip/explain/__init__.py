"""What a clipping call means: its rule in words, its formula, the nearest call in each framework; and two calls compared."""

from gradclip.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
