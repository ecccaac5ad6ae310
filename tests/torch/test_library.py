"""Which libgenesis.so the package loads, and the errors if there is none. Each program runs with a
copy of the package, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import genesis

SOURCES = Path(__file__).resolve().parent.parent.parent / "python" / "genesis"
#: Where the library is looked for below the root of a build tree, first to last.
PLACES = (
    "python/genesis/lib/libgenesis.so",
    "target/release/libgenesis.so",
    "target/debug/libgenesis.so",
)
PRINT_PATH = "print(genesis.library_path())"
PRINT_ERROR = """
try:
    genesis.version()
except (OSError, NotImplementedError) as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a build tree with nothing built."""
    package = tmp_path / "python" / "genesis"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    return tmp_path.resolve()


def printed(root: Path, code: str, **variables: str) -> str:
    """What a program prints that has imported the package."""
    ours = ("GENESIS_LIBRARY", "CARGO_TARGET_DIR", "LD_PRELOAD")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    finished = subprocess.run(
        [sys.executable, "-c", f"import genesis\n{code}"],
        env={**inherited, "PYTHONPATH": str(root / "python"), **variables},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert finished.stderr == ""
    return finished.stdout.strip()


def place(path: Path) -> Path:
    """Makes an empty file at a library's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_places_are_looked_at_in_order(root: Path) -> None:
    named = place(root / "elsewhere" / "any_name.so")
    for number in range(len(PLACES)):
        for name in PLACES:
            (root / name).unlink(missing_ok=True)
        for name in PLACES[number:]:
            place(root / name)
        assert printed(root, PRINT_PATH) == str(root / PLACES[number])
        assert printed(root, PRINT_PATH, GENESIS_LIBRARY=str(named)) == str(named)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_cargos_folder_may_lie_elsewhere(root: Path, is_absolute: bool) -> None:
    place(root / "target/release/libgenesis.so")
    built = place(root / "built/debug/libgenesis.so")
    folder = str(root / "built") if is_absolute else "built"
    assert printed(root, PRINT_PATH, CARGO_TARGET_DIR=folder) == str(built)


def test_links_are_followed(root: Path) -> None:
    """Files next to the library are searched next to the real file."""
    real = place(root / "elsewhere" / "libgenesis.so.0")
    link = root / "libgenesis.so"
    link.symlink_to(real)
    assert printed(root, PRINT_PATH, GENESIS_LIBRARY=str(link)) == str(real)


def test_importing_the_package_needs_no_library(root: Path) -> None:
    assert printed(root, "print('imported')") == "imported"


def test_a_missing_library_is_reported_with_every_place(root: Path) -> None:
    looked = ", ".join(str(root / name) for name in PLACES)
    assert printed(root, PRINT_ERROR) == (
        f"LibraryNotFoundError libgenesis.so was not found (looked for {looked}); build it with "
        "`cargo build --release`, or let GENESIS_LIBRARY name it"
    )


def test_a_file_that_is_named_has_no_substitute(root: Path) -> None:
    place(root / PLACES[0])
    missing = str(root / "no such file.so")
    said = printed(root, PRINT_ERROR, GENESIS_LIBRARY=missing)
    assert f"(looked for {missing});" in said and said.startswith("LibraryNotFoundError"), said


def test_a_file_that_is_no_library_is_reported(root: Path) -> None:
    empty = place(root / PLACES[0])
    said = printed(root, PRINT_ERROR)
    assert said.startswith(f"LibraryNotFoundError {empty} cannot be loaded: "), said


def test_a_library_without_a_function_is_too_old(root: Path) -> None:
    library, source = root / PLACES[0], root / "old.c"
    library.parent.mkdir()
    source.write_text("const char *genesis_version_get(void) { return 0; }\n")
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(["cc", "-shared", source, "-o", library], check=True, env=own)
    said = printed(root, PRINT_ERROR.replace("version()", "stats()"))
    assert said == (
        f"NotImplementedError {library} has no genesis_stats_get: it is older than this package"
    )
    assert printed(root, "print(genesis.trace.available())") == "False"


def test_this_library_is_the_one_that_is_named() -> None:
    assert genesis.library_path() == Path(os.environ["GENESIS_LIBRARY"]).resolve()
