"""A whole process in a region, with something left out."""

from .common import is_equal, saver, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    inside = values(1, 5_000_000).cuda()
    with memory.disable():
        outside = values(2, 5_000_000).cuda()
    before = used()
    memory.pause()
    assert used() <= before - inside.nbytes
    is_equal(outside, values(2, 5_000_000))
    memory.resume()
    is_equal(inside, values(1, 5_000_000))
