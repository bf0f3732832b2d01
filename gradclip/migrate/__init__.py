"""The migration helper: it finds every gradient-clipping call, rewrites what is provably equal, and explains the rest.

``model`` defines the data that the modules exchange; ``apis`` is the table of the frameworks' functions; ``codemod`` reads and
rewrites one source; ``runner`` processes files; ``explain`` describes what one call computes. The package imports no framework
and no backend.
"""
