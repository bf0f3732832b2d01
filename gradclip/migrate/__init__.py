"""The migration helper: finds every gradient-clipping call, rewrites what it can prove, and says what it leaves and why.

``model`` is what its parts hand each other; ``apis`` is the table of the frameworks' functions; ``codemod`` reads and rewrites
one source; ``runner`` walks files; ``explain`` tells what one call computes. It imports no framework and no backend.
"""
