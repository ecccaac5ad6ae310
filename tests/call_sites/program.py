"""Python programs that look at the call sites that their own profiles tell.

Run by tests/call_sites.rs with a case and a file for the profile; a case that is wrong raises.
Memory is asked for through ``ctypes`` alone, so any Python will do: ``FREE`` gives the global
lock up while it calls, as PyTorch does, and ``HELD`` keeps it. Blocks are known by their sizes.
"""

import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
from types import FunctionType

FREE = ctypes.CDLL(os.environ["GENESIS_LIBRARY"])
HELD = ctypes.PyDLL(os.environ["GENESIS_LIBRARY"])
FOREIGN = ctypes.CDLL(os.environ["FOREIGN_LIBRARY"])
SIZE, POINTER, INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
for loaded in (FREE, HELD):
    loaded.genesis_malloc.restype = POINTER
    loaded.genesis_malloc.argtypes = [SIZE, INT, POINTER]
    loaded.genesis_free.restype = None
    loaded.genesis_free.argtypes = [POINTER, SIZE, INT, POINTER]
FOREIGN.allocate_in_foreign_thread.restype = POINTER
FOREIGN.allocate_in_foreign_thread.argtypes = [SIZE]
FOREIGN.allocate_when_let.argtypes = [SIZE]

PROFILE = sys.argv[2]
HERE = os.path.abspath(__file__)
#: How many frames of Python a site tells at most.
MOST_FRAMES = 64
sizes = iter(range(1000, 1000000))


def malloc(size, library=FREE):
    return library.genesis_malloc(size, 0, None)


def free(block):
    FREE.genesis_free(block, 0, 0, None)


def check(status):
    assert status == 0, status


def profile():
    check(FREE.genesis_profile_write(PROFILE.encode()))
    with open(PROFILE) as file:
        return json.load(file)


def live():
    """The sites of live blocks by their sizes, each a list of (function, file, line)."""
    written = profile()
    return {
        block["requested_bytes"]: [
            (frame["function"], frame["file"], frame["line"])
            for frame in written["sites"][block["site"]]["frames"]
        ]
        for block in written["live"]
    }


def expected(frame):
    """What the interpreter itself says of a stack."""
    told = []
    while frame is not None and len(told) < MOST_FRAMES:
        told.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return told


def allocate(size, library=FREE):
    """Allocates, and says what the site should be."""
    told = expected(sys._getframe())
    told[0] = (*told[0][:2], told[0][2] + 2)
    malloc(size, library)
    inner = ("malloc", told[0][1], malloc.__code__.co_firstlineno + 1)
    return [inner, *told][:MOST_FRAMES]


def assert_told(what):
    """``what`` has the expected sites by size."""
    told = live()
    for size, frames in what.items():
        assert told[size] == frames, (size, told[size], frames)


def with_and_without_the_lock():
    what = {}
    for library in (FREE, HELD, FREE, HELD):
        for _ in range(3):
            size = next(sizes)
            what[size] = allocate(size, library)
    assert_told(what)
    # One site for one place, however often, and with whatever library it was called.
    numbers = {block["site"] for block in profile()["live"]}
    assert len(numbers) == 1 and min(numbers) > 0, numbers


def code_of_every_kind():
    what = {}

    def note(library=FREE):
        size = next(sizes)
        what[size] = allocate(size, library)

    class Thing:
        def method(self):
            note()

        @property
        def attribute(self):
            note()

        @staticmethod
        def static():
            note()

        def __enter__(self):
            note()

        def __exit__(self, *_):
            note()

        def __del__(self):
            note()

    def generate():
        note()
        yield 1
        note(HELD)
        yield 2

    async def coroutine():
        note()

    for _ in range(3):
        thing = Thing()
        thing.method()
        _ = thing.attribute
        Thing.static()
        with thing:
            note()
        del thing
        list(generate())
        [note() for _ in range(2)]
        (lambda: note(HELD))()  # noqa: PLC3002
        with contextlib.suppress(StopIteration):
            coroutine().send(None)
        exec(compile("\n\nnote()", "<text>", "exec"), {"note": note})
        sorted([3, 1, 2], key=lambda _: note() or 0)
    assert_told(what)


def threads():
    what = {}
    lock = threading.Lock()

    def first(library):
        for _ in range(200):
            with lock:
                size = next(sizes)
            what[size] = allocate(size, library)
            free(malloc(512, library))

    def second(library):
        first(library)

    running = [
        threading.Thread(target=target, args=(library,))
        for target in (first, second)
        for library in (FREE, HELD)
        for _ in range(2)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert_told(what)


def a_busy_thread():
    """One that holds the lock is waited for once for each new stack, not for each call."""
    is_over = False

    def spin():
        while not is_over:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    what = {}
    for _ in range(50):
        size = next(sizes)
        what[size] = allocate(size)
    is_over = True
    thread.join()
    assert_told(what)


def known_stacks_take_no_lock():
    """The frames of the thread are read without it, where their layout is known."""
    if sys.version_info < (3, 11):
        return

    def allocate_twice():
        for _ in range(2):
            FOREIGN.allocate_when_let(next(sizes))

    thread = threading.Thread(target=allocate_twice)
    thread.start()
    for library in (FOREIGN, ctypes.PyDLL(os.environ["FOREIGN_LIBRARY"])):
        FOREIGN.await_waiting()
        assert library.let_allocate(10), library
    thread.join()


def foreign_threads():
    size = next(sizes)
    FOREIGN.allocate_in_foreign_thread(size)
    frames = live()[size]
    # Its native stack, as there is no other.
    assert frames[0][0] == "allocate" and frames[0][2] > 0, frames
    assert frames[0][1].endswith("call_sites_library.c"), frames


def kinds_of_sites():
    """Chosen while the program runs."""
    told = {}
    for kind in (b"python", b"off", b"native", b"all", b"python"):
        check(FREE.genesis_option_set(b"GENESIS_CALL_SITES", kind))
        size = next(sizes)
        python = allocate(size)
        told[size] = (kind, python)
    sites = live()
    for size, (kind, python) in told.items():
        frames = sites[size]
        if kind == b"python":
            assert frames == python, (kind, frames)
        elif kind == b"off":
            assert frames == [], (kind, frames)
        elif kind == b"all":
            # ctypes and what is between, then Python's.
            between = frames[: -len(python)]
            assert frames[-len(python) :] == python and between, (kind, frames)
            assert any("ffi" in frame[1] or "ctypes" in frame[1] for frame in between), frames
        else:
            assert not any(frame[1] == HERE for frame in frames), (kind, frames)
            assert len(frames) > 5, (kind, frames)


def deep_recursion():
    def descend(levels, size):
        if levels == 0:
            return allocate(size)
        return descend(levels - 1, size)

    sys.setrecursionlimit(10000)
    what = {}
    for levels in (1, 30, 59, 60, 61, 62, 63, 64, 65, 900, 5000):
        for _ in range(2):
            size = next(sizes)
            what[size] = descend(levels, size)
    assert max(len(frames) for frames in what.values()) == MOST_FRAMES
    assert_told(what)


def much_code():
    """More code and more stacks than are told apart: the rest is one site."""
    made = 70000

    def function(size):
        return malloc(size)

    for number in range(made):
        code = function.__code__.replace(co_name=f"function{number}", co_filename=f"<{number}>")
        FunctionType(code, globals())(2000 + number)
    sites = live()
    assert sites[2000][1][:2] == ("function0", "<0>"), sites[2000]
    assert sites[2000 + 30000][1][:2] == ("function30000", "<30000>")
    assert sites[2000 + made - 1] == [("others", "", 0)], sites[2000 + made - 1]


def errors_on_their_way():
    """An error is what it was before a stack was looked at, and with a traceback as long."""

    class Noisy:
        def __init__(self, what):
            self.what = what

        def __del__(self):
            size = next(sizes)
            self.what[size] = allocate(size, HELD)

    def fail(what):
        noisy = Noisy(what)  # noqa: F841
        raise KeyError("mine")

    what = {}
    for _ in range(100):
        try:
            fail(what)
        except KeyError as error:
            assert error.args == ("mine",)
            length, at = 0, error.__traceback__
            while at is not None:
                length, at = length + 1, at.tb_next
            assert length == 2, length
        assert sys.exc_info() == (None, None, None)
    gc.collect()
    assert len(what) >= 99
    assert_told(what)


def during_collections():
    """Garbage that frees memory when it is collected, which may be at any time."""

    class Holder:
        def __init__(self):
            self.block = malloc(512)
            self.self = self

        def __del__(self):
            free(self.block)

    gc.set_threshold(5)
    for number in range(2000):
        Holder()
        exec(compile(f"malloc({number} + 5000)", f"<{number}>", "exec"), {"malloc": malloc})
    gc.collect()
    written = profile()
    assert [block for block in written["live"] if block["requested_bytes"] == 512] == []


def at_exit():
    """Memory asked for and freed until the very end, and told until Python's own end begins."""
    import atexit

    what = {}

    def tell():
        assert_told(what)

    def note():
        for library in (FREE, HELD):
            size = next(sizes)
            what[size] = allocate(size, library)

    # The last registered runs first: `note` around what the library registered.
    atexit.register(tell)
    atexit.register(note)
    note()
    atexit.register(note)

    class AtTheEnd:
        def __del__(self, malloc=HELD.genesis_malloc):
            malloc(512, 0, None)

    sys.modules["genesis_at_the_end"] = AtTheEnd()
    sys.modules["genesis_with_a_cycle"] = cycle = AtTheEnd()
    cycle.itself = cycle


def daemons_at_exit():
    """Threads that are in the middle of it when the interpreter ends; many times over."""
    rounds = 12
    for number in range(rounds):
        child = os.spawnl(
            os.P_WAIT, sys.executable, sys.executable, HERE, "daemons", f"{PROFILE}.{number}"
        )
        assert child == 0, child


def daemons():
    rounds = [0] * 4

    def churn(name):
        for number in range(10**9):
            rounds[name] = number
            # New code each time, so that the lock is wanted each time.
            scope = {"malloc": malloc, "free": free}
            exec(compile("free(malloc(512))", f"<{name} {number}>", "exec"), scope)

    for name in range(4):
        threading.Thread(target=churn, args=(name,), daemon=True).start()
    await_rounds(rounds)


def await_rounds(rounds):
    """Returns once each thread is in the middle of its work."""
    while min(rounds) < 20:
        time.sleep(0.001)


def waits_without_the_lock():
    """Threads that call as CuPy does, with the lock held, where each request has to wait for what
    another stream had; and such threads when the interpreter ends."""
    running = [
        threading.Thread(target=take_turns, args=(number, 100, [0] * 4)) for number in range(4)
    ]
    limit_memory()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for number in range(4):
        child = os.spawnl(
            os.P_WAIT,
            sys.executable,
            sys.executable,
            HERE,
            "waiting_daemons",
            f"{PROFILE}.{number}",
        )
        assert child == 0, child


def waiting_daemons():
    limit_memory()
    rounds = [0] * 4
    for number in range(4):
        threading.Thread(target=take_turns, args=(number, 10**9, rounds), daemon=True).start()
    await_rounds(rounds)


def limit_memory():
    # Room for one block: a thread that finds it live is refused, which is nothing to tell of.
    check(FREE.genesis_option_set(b"GENESIS_LOG", b"off"))
    check(FREE.genesis_option_set(b"GENESIS_MEMORY_LIMIT", b"64MiB"))
    HELD.genesis_cupy_malloc.restype = POINTER
    HELD.genesis_cupy_malloc.argtypes = [POINTER, SIZE, INT]
    HELD.genesis_cupy_free.argtypes = [POINTER, POINTER, INT]


def take_turns(number, most_rounds, rounds):
    stream = 0x1000 * (number + 1)
    for rounds[number] in range(most_rounds):
        block = HELD.genesis_cupy_malloc(stream, 48 << 20, 0)
        if block:
            HELD.genesis_cupy_free(stream, block, 0)


def forked_children():
    """A child is refused, ends well, and does not wait for threads that it has not got."""
    is_over = False

    def churn():
        number = 0
        while not is_over:
            number += 1
            exec(compile("free(malloc(512))", f"<{number}>", "exec"), globals())

    allocate(next(sizes))
    running = [threading.Thread(target=churn) for _ in range(2)]
    for thread in running:
        thread.start()
    began = time.monotonic()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            # Not quite the end: functions registered with atexit run, threads are not waited for.
            import atexit

            assert malloc(512) is None
            atexit._run_exitfuncs()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 7 and os.WIFEXITED(status), status
    assert time.monotonic() - began < 30
    is_over = True
    for thread in running:
        thread.join()
    what = {}
    size = next(sizes)
    what[size] = allocate(size)
    assert_told(what)


check(FREE.genesis_profile_start())
globals()[sys.argv[1]]()
