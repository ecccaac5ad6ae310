"""Contents are kept in a file."""

import tempfile

from .common import MIB, is_equal, saver, torch, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with tempfile.TemporaryDirectory() as folder:
        memory.set_disk_backup_dir(f"{folder}/backups")
        with memory.region(tag="disk", enable_disk_backup=True):
            small = values(1).cuda()
            large = torch.empty(150 * MIB, dtype=torch.uint8, device="cuda")
        large.copy_(torch.full((150 * MIB,), 5, dtype=torch.uint8))
        for _ in range(2):
            memory.pause("disk")
            assert memory.get_cpu_backup(small) is None
            memory.resume("disk")
            is_equal(small, values(1))
            assert large.cpu().eq(5).all()
