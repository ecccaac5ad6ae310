"""Several streams: ``record_stream`` keeps a block from being reused too early. A test without the
hook shows that the race detector finds such a reuse."""

from __future__ import annotations

import torch

from support import simcuda
from support.program import program

BYTES = 64 << 20


def prefetch(steps: int) -> None:
    """Batches are produced on a side stream and consumed on the main one, without the host
    waiting: the pattern that needs ``record_stream``."""
    side = torch.cuda.Stream()
    main = torch.cuda.current_stream()
    for _ in range(steps):
        with torch.cuda.stream(side):
            batch = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
        main.wait_stream(side)
        result = batch.add(1)
        batch.record_stream(main)
        # Freed while the main stream may still read it; the side stream allocates the next.
        del batch, result


@program(modes=("enabled", "mem_pool"), env={"SIMCUDA_PROGRESS": "manual"})
def test_record_stream_keeps_a_block_until_its_reader_is_done() -> None:
    prefetch(steps=6)


@program(modes=("two_symbols",), env={"SIMCUDA_PROGRESS": "manual"}, violations=True)
def test_without_the_hook_a_block_is_reused_while_it_is_read() -> None:
    """With the two symbols alone PyTorch's ``record_stream`` is a silent no-op."""
    prefetch(steps=6)
    assert simcuda.violations() > 0


@program(modes=("enabled",), env={"SIMCUDA_PROGRESS": "manual"})
def test_a_recorded_block_is_pending_until_the_event_behind_it() -> None:
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    tensor = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tensor.add_(1)
    tensor.record_stream(side)
    del tensor
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["active_bytes.all.current"] == BYTES
    other = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    assert other.data_ptr() != address
    torch.cuda.synchronize()
    del other
    # Its event has completed; later allocations notice that.
    again = [torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2)]
    assert address in [tensor.data_ptr() for tensor in again]


@program(modes=("two_symbols", "enabled", "mem_pool"))
def test_a_stream_may_go_before_its_memory() -> None:
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensors = [torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for _ in range(3)]
        torch.cuda.current_stream().wait_stream(stream)
        del stream, tensors
    torch.zeros(2 * BYTES, dtype=torch.uint8, device="cuda")
