"""The natives' own names, signatures and return values, on any framework's tensors: one file a framework."""
