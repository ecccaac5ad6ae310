"""Runs a function of a module in a process of its own: forked from a server that has imported
the module already (:mod:`support.fork_server`), or started fresh.

There is one server for each :class:`Place`, started when first needed; :func:`end` ends them all.
A program runs fresh if its environment has variables that are read before a fork, or if it asks
to, because how a process starts and ends is what it tests.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional

#: Only a program that hangs takes so long, however busy the machine is.
TIMEOUT_SECONDS = 300

#: Beginnings of the names of variables that a framework may read when it is imported.
READ_AT_IMPORT = ("PYTORCH_", "CUPY_", "NUMBA_")
#: PyTorch reads these when its allocator is first used. Only which allocator it is, their option
#: ``backend``, is read at the import.
READ_AT_USE = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
#: What PyTorch 2.12 to 2.14 say of each request that their own allocator refuses.
REFUSALS = r"\[W\S* \S* CUDACachingAllocator\.cpp:\d+\] memory allocation failed with OOM .*"
#: Threads of the host would be in the way of a fork, and of the other workers.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Finished:
    """How a process ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str

    def lines(self, ignored: str = "$.") -> list[str]:
        """The lines of standard error that do not match ``ignored``, nor ``REFUSALS``."""
        passed_over = f"{ignored}|{REFUSALS}"
        return [line for line in self.stderr.splitlines() if not re.fullmatch(passed_over, line)]

    def check(self, says: Optional[str] = None, ignored: str = "$.") -> None:
        """Asserts that the process exited with 0 and that standard error is as expected: every
        line matches ``says``, or without it there are no lines. Lines that match ``ignored`` do
        not count."""
        lines = self.lines(ignored)
        written = self.stdout + "\n".join(lines)
        assert self.status == 0, f"exit status {self.status}\n{written}"
        if says is None:
            assert lines == [], f"standard error is not silent:\n{written}"
        else:
            is_expected = lines and all(re.match(says, line) for line in lines)
            assert is_expected, f"standard error is not lines of {says!r}:\n{written}"


@dataclass(frozen=True)
class Place:
    """Where programs of one kind run."""

    #: Has the function ``main(arguments)``; the arguments are anything that JSON has.
    module: str
    #: Where it finds other modules; the first is the working folder.
    folders: tuple[Path, ...]
    #: What is imported before it.
    imports: tuple[str, ...] = ()
    #: What only the server imports, first: it saves time in the processes that it forks.
    prepared: tuple[str, ...] = ()
    #: The value of ``LD_PRELOAD``; ``None``: this process's own.
    preloaded: Optional[str] = None

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(str(folder) for folder in self.folders)
        preloaded = {} if self.preloaded is None else {"LD_PRELOAD": self.preloaded}
        return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, **preloaded}


def run(place: Place, arguments: Any, env: Mapping[str, str], fresh: bool = False) -> Finished:
    """Calls ``main(arguments)`` of the place's module in a process with these variables set."""
    if fresh or any(_is_read_at_import(*variable) for variable in env.items()):
        return _run_fresh(place, arguments, env)
    return _server(place).run(arguments, env)


def _is_read_at_import(name: str, value: str) -> bool:
    if name in READ_AT_USE:
        return "backend" in value
    return name.startswith(READ_AT_IMPORT)


def _run_fresh(place: Place, arguments: Any, env: Mapping[str, str]) -> Finished:
    modules = ", ".join(("json", "sys", *place.imports, place.module))
    code = f"import {modules}; {place.module}.main(json.loads(sys.argv[1]))"
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(arguments)],
            cwd=place.folders[0],
            env={**place.environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            status = process.wait(TIMEOUT_SECONDS)
        finally:
            # Also what it has started and left, which would hold the files open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stdout.seek(0)
        stderr.seek(0)
        return Finished(status, stdout.read(), stderr.read())


class _Server:
    """A running :mod:`support.fork_server`."""

    def __init__(self, place: Place) -> None:
        modules = (*place.prepared, *place.imports)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.fork_server", place.module, *modules],
            cwd=place.folders[0],
            env=place.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, arguments: Any, env: Mapping[str, str]) -> Finished:
        with tempfile.TemporaryDirectory() as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            job = {
                "arguments": arguments,
                "env": dict(env),
                "stdout": str(stdout),
                "stderr": str(stderr),
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            status = self._wait_for(self._answer())
            return Finished(status, stdout.read_text(), stderr.read_text())

    def end(self) -> None:
        """Ends the server, by the end of its standard input."""
        self._process.communicate()

    def _wait_for(self, child: int) -> int:
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], TIMEOUT_SECONDS)[0]:
            return self._answer()
        os.killpg(child, signal.SIGKILL)
        self._answer()
        raise TimeoutError(f"the program runs for more than {TIMEOUT_SECONDS} s")

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server has ended"
        return int(line)


def load(file: str, name: str) -> Callable[[], Any]:
    """The program ``name`` of a test file, in the process that runs it."""
    specification = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Worker processes look for functions there.
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    function = getattr(module, name)
    program: Callable[[], Any] = getattr(function, "program", function)
    return program


def skip_destructors() -> None:
    """Lets the process end once the exit functions that C is told from now on have run: Genesis's
    and simcuda's. PyTorch was imported before, so its destructors are not run: they remove
    thousands of operators one by one, from tables in memory that a forked child must first copy."""
    c = ctypes.CDLL(None)
    # Called last first: what C has not written yet is, and then the process ends with its status.
    c.on_exit(c._exit, None)
    c.__cxa_atexit(c.fflush, None, None)


def exit_without_python() -> NoReturn:
    """Ends the process: Python's exit functions, then those of C and of shared objects. Python's
    own objects are not freed, which takes a third of a second with PyTorch imported."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(0)
    raise AssertionError("exit() has returned")


_servers: dict[Place, _Server] = {}


def _server(place: Place) -> _Server:
    if place not in _servers:
        _servers[place] = _Server(place)
    return _servers[place]


def end() -> None:
    """Ends all servers."""
    while _servers:
        _servers.popitem()[1].end()
