"""The C++ programs in examples/. libtorch's runs on simcuda. ONNX Runtime's is only compiled, with
a stand-in for the headers, which no wheel has, unless ONNXRUNTIME_INCLUDE names the real ones. What
its functions do is tested with the provider itself, in test_onnxruntime.py."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import genesis

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = Path(sysconfig.get_path("purelib"))
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "include"))


def compile_example(name: str, *flags: str) -> None:
    compiler = os.environ.get("CXX", "c++")
    # The compiler runs without the simulated GPU.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(
        [compiler, *FLAGS, str(ROOT / "examples" / name), *flags], check=True, timeout=300, env=env
    )


def test_libtorch(tmp_path: Path) -> None:
    torch, cuda = PACKAGES / "torch", PACKAGES / "nvidia/cu13/include"
    folders = (torch / "include", torch / "include/torch/csrc/api/include", cuda)
    libraries = (torch / "lib", genesis.library_path().parent)
    compile_example(
        "libtorch.cpp",
        *(flag for folder in folders for flag in ("-isystem", str(folder))),
        *(flag for folder in libraries for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        *("-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch_cpu", "-ltorch", "-lc10_cuda", "-lc10"),
        *("-lgenesis", "-o", str(tmp_path / "libtorch")),
    )
    search = [str(folder) for folder in (PACKAGES / "nvidia").glob("*/lib")]
    search.append(os.environ.get("LD_LIBRARY_PATH", ""))
    run = subprocess.run(
        [tmp_path / "libtorch"],
        env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(search)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "as expected: " in run.stdout and "of them from the cache" in run.stdout


def test_onnxruntime() -> None:
    headers = os.environ.get("ONNXRUNTIME_INCLUDE", str(ROOT / "tests/frameworks/stand_in"))
    compile_example("onnxruntime.cpp", "-fsyntax-only", "-isystem", headers)
