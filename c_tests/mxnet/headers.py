"""Puts the headers of MXNet's wheels where the tests look for them.

    headers.py FOLDER VERSION

leaves FOLDER/VERSION/include, from PyPI's wheel of that version, of which nothing else is kept.
What is there already is left alone. Several may run at once.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile


def main(folder: pathlib.Path, version: str) -> None:
    wanted = folder / version
    if wanted.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch_name:
        scratch = pathlib.Path(scratch_name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        command += ["--platform=manylinux2014_x86_64", f"--dest={scratch}", f"mxnet=={version}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = scratch.glob("*.whl")
        unpacked = scratch / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("mxnet/include/"):
                    archive.extract(name, unpacked)
        try:
            (unpacked / "mxnet").rename(wanted)
        except OSError:
            # Somebody else was faster.
            if not wanted.is_dir():
                raise
        shutil.rmtree(unpacked, ignore_errors=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
