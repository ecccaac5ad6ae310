"""Puts the libraries and the program into the wheel.

They come from the installed tree that GENESIS_INSTALLED names (`cargo xtask dist`), else from the
release build. The release build must have libgenesis.so; GENESIS_LIBRARY may name another file for
it. In the package they lie in lib/ and bin/, as below any prefix. The wheel is for this platform
and for every Python, because the package calls the library by ctypes.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

LIBRARY = "lib/libgenesis.so"
OTHERS = ("lib/libgenesis_preload.so", "lib/cumem_allocator-genesis.so", "bin/genesis")
DOCUMENTS = "share/doc/genesis"
ROOT = Path(__file__).resolve().parent.parent


def found() -> Iterator["tuple[str, Path]"]:
    """Yields places below the package, and the files to copy there."""
    installed = os.environ.get("GENESIS_INSTALLED")
    release = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
    for place in (LIBRARY, *OTHERS):
        file = Path(installed, place) if installed else release / Path(place).name
        if place == LIBRARY and not installed:
            file = Path(os.environ.get("GENESIS_LIBRARY") or file)
        if file.is_file():
            yield place, file
        elif place == LIBRARY or installed:
            raise SystemExit(f"{file} is not there: run `cargo build --release` first")


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        for place, file in found():
            target = Path(self.build_lib, "genesis", place)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        _, _, platform = super().get_tag()
        return "py3", "none", platform

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        """Adds the licences and the bill of materials to the wheel's own folder."""
        super().write_wheelfile(wheelfile_base, *arguments)
        installed = os.environ.get("GENESIS_INSTALLED")
        if installed is None:
            return
        for file in Path(installed, DOCUMENTS).iterdir():
            folder = "sboms" if file.suffix == ".json" else "licenses"
            if folder == "sboms" or "LICENSE" in file.name:
                Path(wheelfile_base, folder).mkdir(exist_ok=True)
                shutil.copy(file, Path(wheelfile_base, folder, file.name))


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
