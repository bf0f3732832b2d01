"""What the linter and the migration share: it reads files, notebooks and projects, resolves names, and knows the mistakes.

``model`` has the data of a run; ``runner`` reads many files; ``source`` is one of them. ``resolve`` says what a name means,
``values`` which value it probably has, and ``gradients`` whether that is a gradient. ``sites`` finds the clips, and ``byhand``
those that are written out. ``codes`` says each mistake once, with its severity, reason and advice; ``traps`` finds the
mistakes in a call. Neither ``gradclip.lint`` nor ``gradclip.migrate`` is imported here.
"""
