"""The migration helper: it finds every gradient-clipping call, rewrites what is provably equal, and explains the rest.

``codemod`` rewrites one source, and ``output`` writes the report. ``gradclip.code`` reads the files and finds the clips. The
package imports no framework and no backend.
"""
