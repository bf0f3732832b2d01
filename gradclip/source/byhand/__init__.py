"""Clips written out by hand: whether code is one, what it computes, and whether that is wrong.

``norms`` finds the clips by norm, ``clamps`` those by value. ``forms`` has what expressions may mean, by
their names too. What they certainly mean, only the migration asks (``gradclip.migrate.byhand``).
"""
