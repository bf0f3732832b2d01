"""The search for files, and the messages about files that it cannot use."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from gradclip.source import files
from gradclip.source.files import Found, PatternError, discover

Tree = Callable[..., None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Make files below the working directory; each argument is a name, or a name and its text."""
    monkeypatch.chdir(tmp_path)

    def make(*names: str, **texts: str) -> None:
        for name in names:
            path, _, text = name.partition("=")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text.replace(";", "\n"), encoding="utf-8")

    return make


def read(*paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    return [found.path for found in discover(paths, exclude) if not (found.error or found.skipped)]


def skipped(*paths: str, exclude: tuple[str, ...] = ()) -> dict[str, str]:
    return {found.path: found.skipped for found in discover(paths, exclude) if found.skipped}


def errors(*paths: str) -> dict[str, str]:
    return {found.path: found.error for found in discover(paths) if found.error}


def test_python_and_notebooks_in_the_order_of_their_paths(tree: Tree) -> None:
    tree("b.py", "a/z.py", "a/b/c.ipynb", "c.txt", "a/n.pyw", "README", "a.py")
    assert read(".") == ["a/b/c.ipynb", "a/n.pyw", "a/z.py", "a.py", "b.py"]
    assert read("b.py", "a") == ["b.py", "a/b/c.ipynb", "a/n.pyw", "a/z.py"]


def test_settings_are_read_too(tree: Tree) -> None:
    tree("a.yaml", "b.yml", "c.json", "d.toml", "e.ini")
    assert read(".") == ["a.yaml", "b.yml", "c.json", "d.toml"]


def test_a_named_file_is_taken_whatever_it_is_called_and_whatever_excludes_it(tree: Tree) -> None:
    tree("script", "build/x.py", ".gitignore=build/;*.log;", "x.log")
    assert read("script", "build/x.py", "x.log") == ["script", "build/x.py", "x.log"]
    assert read(".") == []


def test_nothing_is_met_twice(tree: Tree) -> None:
    tree("a/b/x.py", "a/y.py")
    assert read("a", "a/b", "a/y.py", "./a", os.path.abspath("a/y.py")) == ["a/b/x.py", "a/y.py"]


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("node_modules", "other people's packages, or copies"),
        ("lib/site-packages", "other people's packages, or copies"),
        (".tox", "other people's packages, or copies"),
        ("x.egg-info", "other people's packages, or copies"),
        ("build", "a build folder"),
        ("dist", "a build folder"),
    ],
)
def test_folders_of_others_are_left_out_and_it_is_said(folder: str, why: str, tree: Tree) -> None:
    tree("a.py", f"{folder}/x.py")
    assert read(".") == ["a.py"]
    assert skipped(".") == {folder: why}
    assert read(folder) == [f"{folder}/x.py"], "a named folder is taken"


def test_a_virtual_environment_is_known_by_its_configuration(tree: Tree) -> None:
    tree("my-env/pyvenv.cfg", "my-env/x.py", "env/x.py")
    assert read(".") == ["env/x.py"]
    assert skipped(".") == {"my-env": "a virtual environment"}


def test_a_package_called_build_is_read(tree: Tree) -> None:
    tree("build/__init__.py", "build/x.py")
    assert read(".") == ["build/__init__.py", "build/x.py"]


def test_caches_are_left_out_without_a_word(tree: Tree) -> None:
    tree(".git/x.py", "__pycache__/x.py", ".ipynb_checkpoints/x.ipynb", "a.py")
    assert list(discover(["."])) == [Found("a.py")]


def test_gitignore_files_nest_and_the_innermost_has_the_last_word(tree: Tree) -> None:
    tree(".gitignore=*_gen.py;/only_here.py;out/;", "only_here.py", "a/only_here.py", "a/x_gen.py", "a/out/x.py")
    tree("b/.gitignore=!keep_gen.py;secret.py", "b/keep_gen.py", "b/x_gen.py", "b/secret.py", "a/secret.py")
    assert read(".") == ["a/only_here.py", "a/secret.py", "b/keep_gen.py"]
    assert skipped(".")["a/out"] == skipped(".")["b/x_gen.py"] == "excluded by a .gitignore"


def test_the_gitignore_files_above_count_up_to_the_root_of_the_repository(tree: Tree) -> None:
    tree("outside/.gitignore=*.py", "outside/repo/.git/config", "outside/repo/.gitignore=/a/b/x.py", "outside/repo/a/b/x.py")
    tree("outside/repo/a/b/y.py", "outside/repo/a/.gitignore=y*.py")
    assert read("outside/repo") == []
    assert read("outside/repo/a/b") == []
    tree("outside/repo/a/.gitignore=")
    assert read("outside/repo/a/b") == ["outside/repo/a/b/y.py"]
    assert read("outside") == []


def test_the_gitignore_files_above_do_not_count_outside_of_a_repository(tree: Tree) -> None:
    tree(".gitignore=x.py", "a/x.py")
    assert read("a") == ["a/x.py"]


def test_a_named_folder_is_taken_though_a_gitignore_above_excludes_it(tree: Tree) -> None:
    tree(".git/config", ".gitignore=gen/", "gen/x.py", "gen/sub/y.py")
    assert read(".") == []
    assert read("gen") == ["gen/sub/y.py", "gen/x.py"]


def test_a_gitignore_that_is_no_text_or_has_lines_that_mean_nothing(tree: Tree) -> None:
    tree("a.py", "b.py")
    Path(".gitignore").write_bytes(b"\xff\xfe\n!\na.py\n")
    assert read(".") == ["b.py"]


def test_exclude_is_relative_to_the_working_directory(tree: Tree) -> None:
    tree("src/gen/x.py", "src/gen.py", "src/a_pb2.py", "src/deep/a_pb2.py", "gen/x.py")
    assert read("src", exclude=("src/gen/", "*_pb2.py")) == ["src/gen.py"]
    assert read(".", exclude=("/gen",)) == ["src/a_pb2.py", "src/deep/a_pb2.py", "src/gen/x.py", "src/gen.py"]
    assert skipped("src", exclude=("*_pb2.py",)) == dict.fromkeys(
        ("src/a_pb2.py", "src/deep/a_pb2.py"), "excluded by --exclude"
    )


def test_exclude_outside_of_the_working_directory_is_relative_to_the_folder(tree: Tree, tmp_path: Path) -> None:
    tree("work/x.py", "other/gen/x.py", "other/y.py")
    os.chdir("work")
    assert read("../other", exclude=("/gen/",)) == ["../other/y.py"]


def test_an_exclude_that_means_nothing_is_said_at_once(tree: Tree) -> None:
    with pytest.raises(PatternError):
        discover(["."], ["!"])


def test_links_in_a_folder_are_not_followed_so_that_no_loop_is_walked(tree: Tree) -> None:
    tree("a/x.py")
    os.symlink("..", "a/up")
    os.symlink("x.py", "a/y.py")
    os.symlink("loop.py", "a/loop.py")
    os.symlink("nothing", "a/note.txt")
    assert read(".") == ["a/x.py"]
    assert skipped(".") == dict.fromkeys(("a/loop.py", "a/up", "a/y.py"), "a symbolic link, not followed")


def test_a_named_link_is_followed(tree: Tree) -> None:
    tree("a/x.py")
    os.symlink("a/x.py", "y.py")
    os.symlink("a", "b")
    assert read("y.py", "b") == ["y.py"], "the folder's file is the one that has been named already"
    assert read("b") == ["b/x.py"]


def test_what_is_no_file_is_one_line(tree: Tree) -> None:
    tree("a.py")
    os.symlink("loop", "loop")
    os.symlink("nowhere", "broken")
    os.mkfifo("pipe.py")
    os.mkdir("folder.py")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket.py")
    assert errors("loop", "broken", "gone", ".", os.devnull) == {
        "loop": "too many levels of symbolic links",
        "broken": "a symbolic link to nothing",
        "gone": "no such file or directory",
        "pipe.py": "a named pipe, not a file",
        "socket.py": "a socket, not a file",
        os.devnull: "a device, not a file",
    }
    assert read(".") == ["a.py"]


def test_a_folder_called_like_a_file_is_a_folder(tree: Tree) -> None:
    tree("folder.py/x.py")
    assert read("folder.py") == read(".") == ["folder.py/x.py"]


def test_a_folder_that_cannot_be_read_does_not_stop_the_rest(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree("a/x.py", "b/x.py")

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        if path == "a":
            raise PermissionError(13, "Permission denied")
        return real(path)

    real = os.scandir
    monkeypatch.setattr(files.os, "scandir", scandir)
    assert list(discover(["."])) == [Found("a", error="permission denied"), Found("b/x.py")]
    assert list(discover(["a"])) == [Found("a", error="permission denied")]


def test_folders_nested_deeper_than_the_stack(tree: Tree, tmp_path: Path) -> None:
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    Path("x.py").write_text("")
    os.chdir(tmp_path)
    (found,) = read(".")
    assert found == "d/" * 1500 + "x.py"
    while os.path.isdir("d/d"):  # pytest's own cleanup is recursive
        os.rename("d/d", "e")
        for name in os.listdir("d"):
            os.unlink(f"d/{name}")
        os.rmdir("d")
        os.rename("e", "d")


def test_names_that_are_not_utf_8(tree: Tree) -> None:
    tree(".gitignore=b.py")
    for name in (b"caf\xe9.py", b"b.py"):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    assert [os.fsencode(path) for path in read(".")] == [b"caf\xe9.py"]


def test_the_files_are_found_one_at_a_time(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree("a/x.py", "b/x.py", "c/x.py")
    opened = []

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        opened.append(path)
        return real(path)

    real = os.scandir
    monkeypatch.setattr(files.os, "scandir", scandir)
    assert [found.path for found in islice(discover(["."]), 2)] == ["a/x.py", "b/x.py"]
    assert [os.path.normpath(path) for path in opened] == [".", "a", "b"]
