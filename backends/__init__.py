"""One file a framework: whose tensors, and their fastest operations. Installed as ``gradclip.backends``."""
