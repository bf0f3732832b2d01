"""One file a framework: its natives, and how to make, restore, trace and read its gradients. Each has a process of its own."""
