"""ONNX Runtime's CUDA provider on Genesis's memory::

    options = genesis.onnxruntime.provider_options(device=0)
    session = onnxruntime.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])

The provider then has no allocator of its own: weights, activations and workspaces are Genesis's. It
computes on the legacy default stream, and on no other.
"""

from __future__ import annotations

import ctypes

from . import _library, _structs, options as _options


def provider_options(device: int = 0, **options: _options.Value) -> dict[str, str]:
    """Returns options for the ``CUDAExecutionProvider`` of a session on ``device``; others may be
    added.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. The addresses in the result stay
    valid for the life of the process.
    """
    _options.set_all(options)
    functions = _structs.COnnxruntimeFunctions()
    _library.call("genesis_onnxruntime_functions_get", device, ctypes.byref(functions))
    return {
        "device_id": str(device),
        "gpu_external_alloc": str(functions.alloc),
        "gpu_external_free": str(functions.free),
        "gpu_external_empty_cache": str(functions.empty_cache),
    }
