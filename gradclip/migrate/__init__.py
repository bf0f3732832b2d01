"""The migration helper: it finds every gradient-clipping call, rewrites what is provably equal, and explains the rest.

``codemod`` rewrites one source, and ``output`` writes the report. ``gradclip.source`` reads the files and finds the clips;
``byhand`` reads those that are written out exactly, and ``objections`` say what a rewrite would change. The package imports no
framework and no backend.
"""
