"""Puts libgenesis.so into the wheel: the one that GENESIS_LIBRARY names, else the release build's.

The wheel is for this platform and for every Python: the package calls the library by ctypes.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

LIBRARY = "libgenesis.so"
ROOT = Path(__file__).resolve().parent.parent


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
        library = Path(os.environ.get("GENESIS_LIBRARY") or target / "release" / LIBRARY)
        if not library.is_file():
            raise SystemExit(f"{library} is not there: run `cargo build --release` first")
        shutil.copy(library, Path(self.build_lib, "genesis", LIBRARY))


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> "tuple[str, str, str]":
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
