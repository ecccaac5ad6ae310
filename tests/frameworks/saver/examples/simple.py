"""A tensor is paused and resumed, by tag and altogether."""

from .common import MIB, saver, torch, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    normal = values(1).cuda()
    with memory.region(tag="one"):
        one = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    with memory.region(tag="two"):
        two = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    addresses, before = (one.data_ptr(), two.data_ptr()), used()
    memory.pause("one")
    assert used() <= before - 100 * MIB
    memory.pause("two")
    assert used() <= before - 200 * MIB
    memory.resume("two")
    memory.resume("one")
    memory.pause()
    memory.resume()
    assert (one.data_ptr(), two.data_ptr()) == addresses and used() >= 200 * MIB
    assert torch.equal(normal.cpu(), values(1))
