"""The generator of the conformance suite's vectors: ``python tools/vectors``.

It computes the expected outcomes from the natives' documented formulas: exactly, in mpmath and without gradclip, and rounds
once.
"""
