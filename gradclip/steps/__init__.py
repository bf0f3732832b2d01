"""Many steps: a clip with its state, slots, the monitor, and the choice of a limit."""
