"""The drop-ins: the natives' names, signatures and results, on any framework's tensors. One file for each framework."""
