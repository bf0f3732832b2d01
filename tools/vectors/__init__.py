"""The generator of the conformance suite's vectors: ``python tools/vectors``.

What is expected is computed here from the natives' documented formulas: exactly, in mpmath and without gradclip, and rounded
once.
"""
