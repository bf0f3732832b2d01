"""The drawing of the architecture matches the imports."""

from __future__ import annotations

import doctest
import re
from xml.etree import ElementTree

import house
import pytest


def test_each_part_stands_above_all_that_it_imports() -> None:
    graph = house.parts(house.ROOT / "gradclip")
    assert graph["steps"] == {"core", "limits"}
    floors = house.floors(graph)
    assert len(floors) <= 8, "a new floor: what is it needed for?"
    floor_of = {part: k for k, floor in enumerate(floors) for part in floor}
    assert floor_of.keys() == graph.keys()
    assert all(floor_of[part] < floor_of[other] for part, others in graph.items() for other in others)


def test_a_listing_of_the_package_is_short() -> None:
    package = house.ROOT / "gradclip"
    assert len(house.parts(package)) <= 18, "a new room: which of those here does it belong to?"
    own = [path for path in package.iterdir() if path.suffix == ".py" or (path.is_dir() and not path.is_symlink())]
    assert len([path for path in own if path.name != "__pycache__"]) <= 16, "a loose file: its place is in a room"


def test_every_part_and_every_backend_is_drawn_once() -> None:
    drawn = [
        e.text for e in ElementTree.parse(house.PICTURE).iter("{http://www.w3.org/2000/svg}text") if "class" not in e.attrib
    ]
    parts = {"gradclip" if part == "__init__" else part for part in house.parts(house.ROOT / "gradclip")}
    backends = {"host", "jax", "keras", "numpy", "paddle", "tensorflow", "torch"}
    assert sorted(drawn) == sorted([*parts, *backends])


def test_what_imports_itself_in_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match=r"These import each other: clip, rule\."):
        house.floors({"clip": {"rule"}, "rule": {"clip"}, "errors": set()})


def test_imports_for_type_checkers_do_not_count() -> None:
    source = "if TYPE_CHECKING:\n    from gradclip.limits import Limit\nimport gradclip.core.rule, os\n"
    assert set(house.imports(source)) == {"core"}


def test_the_places_of_the_legend_are_there() -> None:
    for text in house.ADDED.values():
        (place,) = re.findall(r"[a-z_]+(?:/[a-z_]+)*(?:/|\.py)", text)
        assert (house.ROOT / place).exists()


def test_the_examples() -> None:
    result = doctest.testmod(house)
    assert (result.attempted > 0, result.failed) == (True, 0)
