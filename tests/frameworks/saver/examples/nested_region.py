"""A region within that of the whole process."""

from .common import is_equal, saver, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    outer = values(1, 5_000_000).cuda()
    with memory.region(tag="inner", enable_cpu_backup=False):
        inner = values(2, 5_000_000).cuda()
    after = values(3, 5_000_000).cuda()
    before = used()
    memory.pause("inner")
    assert used() <= before - inner.nbytes
    is_equal(outer, values(1, 5_000_000))
    memory.pause("default")
    memory.resume()
    is_equal(outer, values(1, 5_000_000))
    is_equal(after, values(3, 5_000_000))
