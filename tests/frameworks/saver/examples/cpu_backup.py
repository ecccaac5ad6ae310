"""Contents are kept in host memory, of either kind."""

from pathlib import Path

from .common import MIB, is_equal, saver, torch, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with memory.region(tag="kept", enable_cpu_backup=True):
        kept = values(1).cuda()
    with memory.region(tag="mapped", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        mapped = values(2).cuda()
    with memory.region(tag="dropped"):
        dropped = values(3).cuda()
    for _ in range(2):
        memory.pause()
        assert torch.equal(memory.get_cpu_backup(kept), values(1))
        assert torch.equal(memory.get_cpu_backup(mapped, zero_copy=True), values(2))
        memory.resume()
        is_equal(kept, values(1))
        is_equal(mapped, values(2))
        dropped.copy_(values(4))
    assert memory.get_cpu_backup(kept) is None


def run_multi_device_mmap_restore(hook_mode: str) -> None:
    memory = saver(hook_mode)
    tensors = []
    for device in (0, 1):
        region = memory.region(enable_cpu_backup=True, cpu_backup_backend="mmap")
        with torch.cuda.device(device), region:
            tensors.append(values(device).cuda())
    memory.pause()
    torch.cuda.set_device(0)
    memory.resume()
    for device, tensor in enumerate(tensors):
        is_equal(tensor, values(device))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_rss(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with memory.region(enable_cpu_backup=True, cpu_backup_backend="mmap"):
        tensor = torch.zeros(256 * MIB, dtype=torch.uint8).cuda()
    before = resident_bytes()
    memory.pause()
    paused = resident_bytes()
    memory.resume()
    assert tensor.nbytes == 256 * MIB
    # The simulated GPU's memory is the process's as well, so only the backup's going shows.
    assert resident_bytes() <= max(before, paused) + 32 * MIB


def run_backend_from_env(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with memory.region(enable_cpu_backup=True):
        tensor = values(1).cuda()
    memory.pause()
    assert torch.equal(memory.get_cpu_backup(tensor), values(1))
    memory.resume()
    is_equal(tensor, values(1))


def run_preload_backend_from_env(hook_mode: str) -> None:
    memory = saver(hook_mode)
    tensor = values(1).cuda()
    memory.pause()
    assert torch.equal(memory.get_cpu_backup(tensor), values(1))
    memory.resume()
    is_equal(tensor, values(1))


def run_retain_from_env(hook_mode: str) -> None:
    memory = saver(hook_mode)
    assert memory.retain_cpu_backup
    with memory.region(enable_cpu_backup=True):
        tensor = values(1).cuda()
    memory.pause()
    where = memory.get_cpu_backup(tensor, zero_copy=True).data_ptr()
    memory.resume()
    assert memory.get_cpu_backup(tensor, zero_copy=True).data_ptr() == where
    tensor.copy_(values(2))
    memory.pause()
    assert torch.equal(memory.get_cpu_backup(tensor), values(2))
    memory.resume()
    is_equal(tensor, values(2))
