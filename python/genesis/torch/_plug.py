"""The library as PyTorch sees it: two functions and eight hooks, passed as addresses.

PyTorch keeps bare addresses, so the only allocator object is made here and never freed.
"""

from __future__ import annotations

import functools
import warnings

import torch

from .. import _library

#: The setter of each hook, and the function that it sets.
_HOOKS = {
    "set_init_fn": "genesis_torch_init",
    "set_reset_fn": "genesis_torch_reset",
    "set_memory_fraction_fn": "genesis_torch_memory_fraction_set",
    "set_base_alloc_fn": "genesis_torch_base_get",
    "set_record_stream_fn": "genesis_torch_record_stream",
}

#: Hooks that take C++ objects. The library has them on platforms whose layout it knows.
_POOL_HOOKS = {
    "set_begin_allocate_to_pool": "genesis_torch_pool_begin",
    "set_end_allocate_to_pool_fn": "genesis_torch_pool_end",
    "set_release_pool": "genesis_torch_pool_release",
}


@functools.cache
def allocator() -> torch.cuda.memory.CUDAPluggableAllocator:
    """Genesis as a pluggable allocator, with all its hooks."""
    plug = torch.cuda.memory.CUDAPluggableAllocator(
        str(_library.path()), "genesis_torch_malloc", "genesis_torch_free"
    )
    for setter, name in _HOOKS.items():
        hook = _library.address(name)
        if hook is None:
            raise NotImplementedError(
                f"{_library.path()} has no {name}: it is older than this package"
            )
        getattr(plug.allocator(), setter)(hook)
    _set_pool_hooks(plug)
    return plug


def _set_pool_hooks(plug: torch.cuda.memory.CUDAPluggableAllocator) -> None:
    hooks = {setter: _library.address(name) for setter, name in _POOL_HOOKS.items()}
    if None in hooks.values():
        warnings.warn(
            "this libgenesis.so has no private pools on this platform: CUDA graphs and "
            "use_mem_pool must not be used with it",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    for setter, hook in hooks.items():
        getattr(plug.allocator(), setter)(hook)
