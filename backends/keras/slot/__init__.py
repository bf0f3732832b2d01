"""The parts of the Keras slot: state, skipped steps, saving, checks, logs."""
