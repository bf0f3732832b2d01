"""``python tools/dark.py``: make ``docs/pictures/run-dark.png``, for dark pages, from ``docs/pictures/run.png``.

It inverts the lightness and keeps every hue. With ``--check`` it writes nothing, and ends with 1 if the picture is not current.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import image

LIGHT = Path(__file__).parents[1] / "docs" / "pictures" / "run.png"
BACKGROUND = np.array([13, 17, 23]) / 255  #: the dark background of GitHub's pages


def dark(pixels: Any) -> Any:
    """Invert the lightness of RGB pixels between 0 and 1, of shape (..., 3); white becomes the background."""
    sums = pixels.min(-1, keepdims=True) + pixels.max(-1, keepdims=True)  # twice the lightness
    return BACKGROUND + (pixels + 1 - sums) * (1 - BACKGROUND)


def main(arguments: Sequence[str] | None = None, light: Path = LIGHT) -> int:
    """Write the picture, or compare it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    made = np.round(dark(image.imread(light)[..., :3]) * 255).astype(np.uint8)
    path = light.with_name(f"{light.stem}-dark.png")
    if not parser.parse_args(arguments).check:
        image.imsave(path, made)
        return 0
    is_current = path.exists() and np.array_equal(np.round(image.imread(path)[..., :3] * 255), made)
    if not is_current:
        print(f"{path.name} is not what python tools/dark.py writes", file=sys.stderr)
    return int(not is_current)


if __name__ == "__main__":
    sys.exit(main())
