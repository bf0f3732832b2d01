"""What the conformance suite needs of each framework: arrays to hand to a target, and the framework's own clips as one."""
