"""``torch.cuda.caching_allocator_enable``."""

from __future__ import annotations

import threading
from typing import Optional

from .. import _statistics, options as _options
from . import _say

_lock = threading.Lock()
#: The limit of the cache to be restored; ``None`` while there is a cache.
_limit_before: Optional[str] = None


def enable(value: bool) -> None:
    """``torch._C._cuda_cudaCachingAllocator_enable``: without a cache, everything freed goes back
    to the driver as soon as no block of its segment is live."""
    global _limit_before
    with _lock:
        if value and _limit_before is not None:
            _options.put("cache_size", _limit_before)
            _limit_before = None
        elif not value and _limit_before is None:
            _say.once(
                "torch.cuda.caching_allocator_enable(False): nothing stays cached, but blocks "
                "still share segments, and statistics still count them; pool_type=Naive, from the "
                "start, asks the driver for each block"
            )
            _limit_before = _options.get("cache_size")
            _options.put("cache_size", 0)
            _statistics.empty_cache()


def is_enabled() -> bool:
    """``torch._C._cuda_cudaCachingAllocator_is_enabled``."""
    return _limit_before is None
