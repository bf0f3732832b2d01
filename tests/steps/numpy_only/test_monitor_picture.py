"""The monitor's picture: its size is fixed, its colours suit colour-blind readers, and it shows what its text says."""

from __future__ import annotations

import math
from importlib import util
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

import gradclip
from gradclip.dialects import optax
from gradclip.steps.monitor import picture


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


def lines(monitor: gradclip.Monitor, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, np.ndarray], tuple[float, float]]:
    """The drawn lines by their labels, and the first and the last step of the picture."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    monitor.plot("unused.png")
    axes = drawn[0].axes[0]
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.get_lines()}, axes.get_xlim()


@pytest.mark.parametrize("norms", [[1.9, 1.0, 0.3] * 20, [1.0] * 7, [0.0, 1e-30, 1e30] * 9, [3.0]])
def test_no_largest_norm_lies_below_the_median(norms: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = lines(told(norms, 0.5), monkeypatch)
    below = found["largest"][:, 1] < found["median"][:, 1]
    assert not below.any()


@pytest.mark.parametrize("clipped", [[0], [150], [299], [3, 4, 5, 100]])
def test_a_limit_that_stays_is_drawn_over_all_steps(clipped: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    found, (begin, end) = lines(told([2.0 if step in clipped else 0.5 for step in range(300)], 1.0), monkeypatch)
    assert found["limit"].tolist() == [[begin, 1.0], [end, 1.0]]


def test_a_limit_that_moves_is_drawn_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = gradclip.Monitor()
    for step in range(100):
        monitor.update(2.0 if 20 <= step < 60 else 0.5, limit=1.0 + step / 100)
    found, (_, end) = lines(monitor, monkeypatch)
    assert found.pop("limit")[[0, -1]].ravel().tolist() == pytest.approx([20.0, 1.2, 59.0, 1.59])
    dotted = next(points for label, points in found.items() if label.startswith("_"))
    assert dotted.ravel().tolist() == pytest.approx([59.0, 1.59, end, 1.59])


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
