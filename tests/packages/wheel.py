"""What an installed wheel must do: alone (`wheel.py alone`), and under PyTorch (`wheel.py torch`).

Run by `cargo xtask test-packages` with the Python of a fresh virtual environment.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import genesis

MIB = 1 << 20


def alone() -> None:
    package = Path(sysconfig.get_path("purelib"), "genesis")
    assert genesis.library_path() == package / "lib/libgenesis.so", genesis.library_path()
    assert (package / "lib/libgenesis_preload.so").is_file()
    assert (package / "lib/cumem_allocator-genesis.so").is_file()
    assert genesis.stats(0).allocations == 0
    command = Path(sysconfig.get_path("scripts"), "genesis")
    said = subprocess.run([command, "doctor"], capture_output=True, text=True, check=True).stdout
    assert f"{package}/bin/../lib/libgenesis.so" in said and "Nothing is wrong." in said, said
    metadata = next(package.parent.glob("genesis-*.dist-info"))
    assert (metadata / "sboms/genesis.cdx.json").is_file()
    assert (metadata / "licenses/THIRD-PARTY-LICENSES.txt").is_file()


def under_torch() -> None:
    import torch

    import genesis.torch

    genesis.torch.enable(memory_limit="1GiB")
    kept = torch.ones(MIB, device="cuda")
    assert genesis.stats(0).requested_bytes.current == 4 * MIB
    try:
        # The exception is PyTorch's own, and passes through the library.
        torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "Genesis holds" in str(error), error
    else:
        raise AssertionError("2 GiB of 1 GiB")
    model = torch.nn.Linear(256, 256, device="cuda")
    loss = model(kept[: 4 * 256].view(4, 256)).sum()
    loss.backward()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == genesis.stats(0).allocated_bytes.current


{"alone": alone, "torch": under_torch}[sys.argv[1]]()
