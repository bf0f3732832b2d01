"""The monitor's picture: its size is fixed, its colours suit colour-blind readers, and it shows what its text says."""

from __future__ import annotations

import math
from importlib import util
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import gradclip
from gradclip.dialects import optax
from gradclip.monitor import picture


def told(norms: list[float], limit: float) -> gradclip.Monitor:
    monitor = gradclip.Monitor()
    for norm in norms:
        monitor.update(norm, limit=limit)
    return monitor


def pixels(path: Path, colour: str) -> int:
    """Count the pixels of a colour, blended onto white with any opacity above one half."""
    image, wanted = np.asarray(imread(path))[..., :3], np.array(to_rgb(colour))
    return int(sum((np.abs(image - (1 - a * (1 - wanted))).max(axis=-1) < 0.01).sum() for a in (1.0, 0.9, 0.8, 0.7, 0.6)))


def test_the_picture_shows_what_was_clipped_and_what_was_not_finite(tmp_path: Path) -> None:
    norms = [0.5, 0.7, 2.0, 0.6] * 30
    for name, seen, limit in (("plain", norms, 10.0), ("clipped", norms, 1.0), ("broken", [*norms, math.nan], 10.0)):
        told(seen, limit).plot(tmp_path / f"{name}.png")
    shapes = {imread(file).shape[:2] for file in tmp_path.iterdir()}
    assert shapes == {(600, 1200)}
    for colour, name in ((picture.CLIPPED, "clipped"), (picture.BROKEN, "broken")):
        found = {file.stem: pixels(file, colour) for file in tmp_path.iterdir()}
        assert found.pop(name) > 100
        assert max(found.values()) < 20, colour


def test_the_colours_differ_in_lightness_too() -> None:
    """They can be told apart without seeing colours."""
    light = [float(np.dot(to_rgb(c), (0.2126, 0.7152, 0.0722))) for c in (picture.LIMIT, picture.NORM, picture.CLIPPED)]
    assert min(np.diff(light)) > 0.2


def test_pictures_of_groups_and_of_nothing(tmp_path: Path) -> None:
    gradclip.Monitor().plot(tmp_path / "empty.png")
    groups = gradclip.Monitor()
    rules = [gradclip.Group(optax.clip_by_global_norm(1.0), str(i)) for i in range(3)]
    groups.update(gradclip.clip([np.array([3.0]), np.array([0.0]), np.array([np.nan])], rules))
    groups.plot(tmp_path / "groups.png")
    assert imread(tmp_path / "groups.png").shape[:2] == (900, 1200)


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs matplotlib.*\n.*gradclip\[monitor\]"):
        gradclip.Monitor().plot(tmp_path / "run.png")
