"""The suite for a clip on several ranks, each a process: ``gradclip conformance TARGET --ranks N``."""
