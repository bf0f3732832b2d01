"""Clips written out by hand, read so exactly that they can be rewritten.

``gradclip.source.byhand`` finds what may be a clip, and guesses. Here ``certain`` says which value a name certainly has,
``exact`` what an expression certainly computes, and ``functional`` reads a whole clip from it.
"""
