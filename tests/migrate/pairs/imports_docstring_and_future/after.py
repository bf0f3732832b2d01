#!/usr/bin/env python
# -*- coding: utf-8 -*-
# A licence.
"""The docstring is first."""

from __future__ import annotations

import os
from typing import Any

import gradclip


def clip(model: Any) -> Any:
    return gradclip.clip_grad_norm_(model.parameters(), float(os.environ["CLIP"]))
