"""Keras has no tensors of its own: this is the framework that ``KERAS_BACKEND`` names."""

from __future__ import annotations

import importlib

import keras
from frameworks.base import Framework

framework: Framework = importlib.import_module(f"frameworks.{keras.backend.backend()}").framework
framework.packages = (*framework.packages, "keras")
