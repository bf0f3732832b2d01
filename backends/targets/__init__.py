"""For the conformance suite: each framework's arrays, and its own clips as a target."""
