"""One framework's run, in its own process, started by ``gradclip demo``.

``python -m gradclip.backends.demo torch '{"steps": 300, "rules": [["torch", "clip_grad_norm", {"max_norm": 1.0}]]}'``
"""

from __future__ import annotations

import importlib
import json
import sys

from gradclip.conformance.children import channel

if __name__ == "__main__":
    with channel() as send:  # the import is in here: it fails if a framework is broken
        name, task = sys.argv[1:]
        module = importlib.import_module(f"gradclip.backends.demo.{name}")
        if name == "story":
            module.train(json.loads(task), send)
        else:
            importlib.import_module("gradclip.backends.demo.training").train(module.trainer, json.loads(task), send)
