"""The host's memory, shared by all frameworks: compiled loops, the Python that calls them, and the lane that they carry."""
