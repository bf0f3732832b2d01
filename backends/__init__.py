"""The backends, one for each framework. Installed as ``gradclip.backends``."""
