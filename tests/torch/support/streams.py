"""Streams of another library than PyTorch, and kernels that extensions launch."""

from __future__ import annotations

import ctypes
from typing import Optional

import torch

_preloaded = ctypes.CDLL(None)
#: Of CUDA: the stream does not wait for the legacy default stream.
_NON_BLOCKING = 1


class Stream(torch.cuda.ExternalStream):
    """A stream of ``device`` that lasts until it is destroyed, unlike PyTorch's own streams."""

    def __new__(cls, device: int = 0) -> Stream:
        handle = ctypes.c_void_p()
        with torch.cuda.device(device):
            code = _preloaded.cudaStreamCreateWithFlags(ctypes.byref(handle), _NON_BLOCKING)
        assert code == 0 and handle.value, code
        return super().__new__(cls, handle.value, device=device)

    def destroy(self) -> None:
        """Its queued work continues; the driver may reuse its handle at once."""
        code = _preloaded.cudaStreamDestroy(ctypes.c_void_p(self.cuda_stream))
        assert code == 0, code


def touch(
    tensor: torch.Tensor, stream: Optional[torch.cuda.Stream] = None, writes: bool = False
) -> None:
    """Queues a kernel that reads ``tensor``, or writes it, on ``stream`` or the current one. The
    kernel runs on the stream's device, wherever the tensor lies: PyTorch's own operators insist
    that the two are one, extensions need not."""
    stream = torch.cuda.current_stream() if stream is None else stream
    kernel = _preloaded.simcuda_touch
    address, size = ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)
    handle = ctypes.c_void_p(stream.cuda_stream)
    code = kernel(stream.device.index, handle, address, size, int(writes))
    assert code == 0, code
