"""Clips written out by hand: whether code is one, what it computes, and whether that is wrong.

``norms`` finds quotients of a limit and a norm, ``values`` clamps of gradients. ``forms`` has what expressions may mean, by
their names too; ``exact`` what they certainly compute, and ``functional`` reads a whole clip from it, which can be rewritten.
"""
