"""A small classifier trained with each framework, for ``gradclip demo``: one file a framework."""
