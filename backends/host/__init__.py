"""The host's memory, for all frameworks: compiled loops, the Python that calls them, and their lane."""
