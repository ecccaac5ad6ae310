"""A process that has imported modules once and forks a child for each program that needs them:
``python -m support.fork_server MODULE OTHER…``.

Importing PyTorch takes seconds, a fork milliseconds. The server imports the other modules, then
``MODULE``. It reads one job per line of standard
input, as JSON, and answers with two lines: the child's process number, then its exit status. The
child sets its environment, writes to the job's files, calls ``MODULE.main(arguments)`` and ends as
any Python process does, by the end of its main module.

A fork copies one thread, and a driver that has started does not survive it. So before each fork
the server checks that it has one thread and that no call has reached the driver.

What is read before the fork cannot be set by a job: what the dynamic linker reads, and what
modules read when they are imported (:data:`support.processes.READ_AT_IMPORT`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from typing import Any, Optional

from support import simcuda

Job = dict[str, Any]


def main(module: str, *others: str) -> None:
    for name in others:
        importlib.import_module(name)
    program = importlib.import_module(module)
    # What is there by now is never freed, so children need not look at it.
    gc.collect()
    gc.freeze()
    job = serve()
    if job is not None:
        program.main(job["arguments"])


def serve() -> Optional[Job]:
    """Answers jobs until there are no more; in a child, returns the child's job."""
    while line := sys.stdin.buffer.readline():
        check_that_a_fork_is_safe()
        job: Job = json.loads(line)
        child = os.fork()
        if child == 0:
            become(job)
            return job
        answer(child)
        _, status = os.waitpid(child, 0)
        answer(os.waitstatus_to_exitcode(status))
    return None


def answer(number: int) -> None:
    os.write(1, b"%d\n" % number)


def check_that_a_fork_is_safe() -> None:
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads before a fork"
    assert not simcuda.has_started(), "CUDA has started before a fork"


def become(job: Job) -> None:
    """Makes a fresh child the process that the job describes."""
    os.setsid()  # so that a child that hangs is killed with all its own
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for descriptor, file, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, job["stdout"], written),
        (2, job["stderr"], written),
    ):
        opened = os.open(file, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.update(job["env"])


if __name__ == "__main__":
    main(*sys.argv[1:])
