"""One file for each framework: its natives, and how to make, restore, trace and read its gradients. Each has a process."""
