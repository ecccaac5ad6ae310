"""libgenesis.so: finding it, its functions with their C types, and its errors.

The library is loaded once, when one of its functions is first needed, and never unloaded. The
first of these files that exists is loaded; if ``GENESIS_LIBRARY`` is set, no other is tried:

1. the file that ``GENESIS_LIBRARY`` names,
2. the package's own copy (in a wheel),
3. the build tree's, release before debug.

Loading it starts nothing: no driver call is made before the first call that needs a device, so a
process may still fork.

A library may lack functions: it may be older than this package, or built for a platform without
them. :func:`has` returns true if a function exists; using one that does not is an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Optional

from . import _structs

FILE_NAME = "libgenesis.so"


class GenesisError(RuntimeError):
    """A call of the library failed; the text is the library's own error line."""

    #: The number of the failure: a ``genesis_status`` of genesis.h.
    status: int

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class InvalidArgumentError(GenesisError, ValueError):
    """An argument is outside what the call accepts; nothing was changed."""


class ConfigurationError(GenesisError, ValueError):
    """A setting in the environment is wrong; no allocation succeeds until it is fixed."""


class OutOfMemoryError(GenesisError, MemoryError):
    """Memory is short, even after everything cached was returned to the driver."""


class LimitReachedError(OutOfMemoryError):
    """A tag or a private pool has reached its limit; memory itself may not be short."""


class BusyError(GenesisError):
    """The call would disturb another operation in progress; nothing was changed."""


class LibraryNotFoundError(OSError):
    """No libgenesis.so was found, or it cannot be loaded."""


SUCCESS = 0
INVALID_ARGUMENT = 1
_ERRORS = {
    INVALID_ARGUMENT: InvalidArgumentError,
    2: OutOfMemoryError,
    3: InvalidArgumentError,  # no such device
    6: ConfigurationError,
    13: BusyError,
    14: LimitReachedError,
}


class Gauge(ctypes.Structure):
    """``genesis_gauge``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "total")]


class CStats(ctypes.Structure):
    """``genesis_stats``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, Gauge)
            for name in (
                "requested_bytes",
                "allocated_bytes",
                "reserved_bytes",
                "active_bytes",
                "inactive_bytes",
            )
        ),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "allocations",
                "frees",
                "hits",
                "misses",
                "driver_calls",
                "driver_memory_calls",
                "driver_nanoseconds",
                "retries",
                "out_of_memory_events",
                "cross_stream_reuses",
                "free_bytes",
                "largest_free_bytes",
            )
        ),
        *(
            (name, ctypes.c_double)
            for name in ("hit_rate", "fragmentation_ratio", "fragmentation_index")
        ),
        ("cache_empties", ctypes.c_uint64),
        ("managed_bytes", ctypes.c_uint64),
        ("oversubscribed_bytes", ctypes.c_uint64),
        ("peak_oversubscribed_bytes", ctypes.c_uint64),
    ]


class CPoolStats(ctypes.Structure):
    """``genesis_pool_stats``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, Gauge)
            for name in (
                "allocated_bytes",
                "reserved_bytes",
                "active_bytes",
                "inactive_split_bytes",
                "requested_bytes",
                "allocation",
                "segment",
                "active",
                "inactive_split",
            )
        ),
    ]


class CBlockInfo(ctypes.Structure):
    """``genesis_block_info``."""

    _fields_ = [
        ("address", ctypes.c_void_p),
        ("requested_bytes", ctypes.c_size_t),
        ("allocated_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
    ]


class CLiveBlock(ctypes.Structure):
    """``genesis_live_block``."""

    _fields_ = [
        ("address", ctypes.c_void_p),
        ("requested_bytes", ctypes.c_size_t),
        ("allocated_bytes", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("age_ns", ctypes.c_uint64),
        ("tag", ctypes.c_char_p),
        ("location", ctypes.c_char_p),
    ]


class CPoolBlock(ctypes.Structure):
    """``genesis_pool_block``."""

    _fields_ = [
        ("address", ctypes.c_void_p),
        ("requested_bytes", ctypes.c_size_t),
        ("allocated_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("state", ctypes.c_int),
        ("is_small", ctypes.c_int),
        ("segment_address", ctypes.c_void_p),
        ("segment_bytes", ctypes.c_size_t),
    ]


class CPoolId(ctypes.Structure):
    """``genesis_pool_id``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("first", "second")]


class CPoolSource(ctypes.Structure):
    """``genesis_pool_source``: addresses."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("user_data", "allocate", "free")]


class CPoolUsage(ctypes.Structure):
    """``genesis_pool_usage``."""

    _fields_ = [
        ("limit_bytes", ctypes.c_size_t),
        ("reserved_bytes", ctypes.c_size_t),
        ("live_bytes", ctypes.c_size_t),
        ("refusals", ctypes.c_uint64),
    ]


#: The ``age_ns`` of a block of unknown age.
AGE_UNKNOWN = 2**64 - 1
#: The limit of what has none.
NO_LIMIT = ctypes.c_size_t(-1).value
#: ``genesis_tag_visitor``.
TagVisitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_structs.CTagUsage))
#: ``genesis_pool_map`` and ``genesis_pool_unmap``.
PoolMap = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
)
PoolUnmap = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
#: ``genesis_neighbour_visitor``.
NeighbourVisitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_structs.CNeighbour))
#: ``genesis_progress_callback``.
ProgressCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
#: ``genesis_live_block_visitor``.
LiveBlockVisitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(CLiveBlock))

#: ``genesis_compaction_callback``.
CompactionCallback = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_structs.CCompaction)
)
#: ``genesis_forecast_callback``.
ForecastCallback = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_structs.CForecast)
)

_Status = ctypes.c_int
_Text = ctypes.c_char_p
_Int = ctypes.c_int
_Size = ctypes.c_size_t
_Pointer = ctypes.POINTER
_Address = ctypes.c_void_p

#: Result and arguments of each function that Python calls.
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "genesis_version_get": (_Text, []),
    "genesis_status_text_get": (_Text, [_Int]),
    "genesis_last_error_message_get": (_Text, []),
    "genesis_option_set": (_Status, [_Text, _Text]),
    "genesis_option_get": (_Status, [_Text, _Text, _Size]),
    "genesis_memory_info_get": (_Status, [_Int, _Pointer(_Size), _Pointer(_Size)]),
    "genesis_memory_fraction_get": (_Status, [_Int, _Pointer(ctypes.c_double)]),
    "genesis_memory_fraction_set": (_Status, [_Int, ctypes.c_double]),
    "genesis_cache_limit_set": (_Status, [_Int, _Size]),
    "genesis_memory_preallocate": (_Status, [_Int, _Size, _Address]),
    "genesis_plan_wait": (_Status, []),
    "genesis_plan_write": (_Status, [_Text]),
    "genesis_cache_empty": (_Status, [_Int]),
    "genesis_garbage_collect": (_Status, [_Int, _Pointer(_Size)]),
    "genesis_memory_compact": (_Status, [_Int, _Pointer(_Size)]),
    "genesis_memory_optimize": (_Status, [_Int, _Pointer(_structs.COptimization)]),
    "genesis_managed_advise": (_Status, [_Address, _Size, _Int, _Int]),
    "genesis_managed_prefetch": (_Status, [_Address, _Size, _Int, _Address]),
    "genesis_forecast_get": (_Status, [_Int, _Pointer(_structs.CForecast)]),
    "genesis_forecast_callback_set": (_Status, [ForecastCallback, _Address]),
    "genesis_compaction_callback_set": (_Status, [CompactionCallback, _Address]),
    "genesis_stats_get": (_Status, [_Int, _Pointer(CStats)]),
    "genesis_stats_reset_peak": (_Status, [_Int]),
    "genesis_pool_stats_get": (_Status, [_Int, _Int, _Pointer(CPoolStats)]),
    "genesis_live_blocks_visit": (_Status, [_Int, _Size, LiveBlockVisitor, ctypes.c_void_p]),
    "genesis_neighbours_visit": (_Status, [_Int, NeighbourVisitor, ctypes.c_void_p]),
    "genesis_progress_callback_set": (_Status, [ProgressCallback, _Address]),
    "genesis_torch_pool_function_get": (_Status, [CPoolId, _Pointer(_Address)]),
    "genesis_torch_pool_function_release": (_Status, [CPoolId]),
    "genesis_private_pool_create": (_Status, [_Int, CPoolId, _Int, _Pointer(CPoolSource)]),
    "genesis_private_pool_communication_create": (
        _Status,
        [_Int, CPoolId, _Pointer(_structs.CPoolRegistrar)],
    ),
    "genesis_private_pool_communication_get": (
        _Status,
        [_Int, CPoolId, _Pointer(_structs.CPoolCommunication)],
    ),
    "genesis_private_pool_begin": (_Status, [_Int, CPoolId]),
    "genesis_private_pool_end": (_Status, [_Int, CPoolId]),
    "genesis_private_pool_hold": (_Status, [_Int, CPoolId, _Int]),
    "genesis_private_pool_release": (_Status, [_Int, CPoolId]),
    "genesis_private_pool_uses_get": (_Status, [_Int, CPoolId, _Pointer(ctypes.c_uint64)]),
    "genesis_private_pool_limit_set": (_Status, [_Int, CPoolId, _Size]),
    "genesis_private_pool_usage_get": (_Status, [_Int, CPoolId, _Pointer(CPoolUsage)]),
    "genesis_private_pool_blocks_get": (
        _Status,
        [_Int, CPoolId, _Pointer(CPoolBlock), _Size, _Pointer(_Size)],
    ),
    "genesis_private_pool_blocks_place": (_Status, [_Int, CPoolId, _Pointer(CPoolBlock), _Size]),
    "genesis_private_pool_arena_create": (_Status, [_Int, CPoolId]),
    "genesis_arena_create": (_Status, [_Pointer(_structs.CArenaOptions), _Pointer(_Address)]),
    "genesis_arena_destroy": (None, [_Address]),
    "genesis_arena_buffer_create": (_Status, [_Address, _Size, _Size, _Pointer(_Address)]),
    "genesis_arena_reset": (_Status, [_Address]),
    "genesis_arena_mark": (_Status, [_Address, _Pointer(_structs.CArenaPosition)]),
    "genesis_arena_rewind": (_Status, [_Address, _structs.CArenaPosition]),
    "genesis_arena_trim": (_Status, [_Address]),
    "genesis_arena_stats_get": (_Status, [_Address, _Pointer(_structs.CArenaStats)]),
    "genesis_fixed_pool_create": (
        _Status,
        [_Pointer(_structs.CFixedPoolOptions), _Pointer(_Address)],
    ),
    "genesis_fixed_pool_destroy": (None, [_Address]),
    "genesis_fixed_pool_buffer_create": (_Status, [_Address, _Pointer(_Address)]),
    "genesis_fixed_pool_stats_get": (_Status, [_Address, _Pointer(_structs.CFixedPoolStats)]),
    "genesis_memory_manager_create": (
        _Status,
        [_Pointer(_structs.CMemoryManagerOptions), _Pointer(_Address)],
    ),
    "genesis_memory_manager_destroy": (None, [_Address]),
    "genesis_memory_manager_buffer_create": (
        _Status,
        [_Address, _Size, _Size, _Pointer(_Address)],
    ),
    "genesis_memory_manager_stats_get": (
        _Status,
        [_Address, _Pointer(_structs.CMemoryManagerStats)],
    ),
    "genesis_host_is_pinned": (_Int, [_Address]),
    "genesis_host_record_stream": (_Status, [_Address, _Address]),
    "genesis_host_preallocate": (_Status, [_Int, _Size, _Int]),
    "genesis_host_preallocate_wait": (_Status, []),
    "genesis_host_memory_limit_set": (_Status, [_Int, _Size]),
    "genesis_host_memory_limit_get": (_Status, [_Int, _Pointer(_Size)]),
    "genesis_host_cache_limit_set": (_Status, [_Int, _Size]),
    "genesis_host_cache_limit_get": (_Status, [_Int, _Pointer(_Size)]),
    "genesis_host_cache_empty": (_Status, [_Int]),
    "genesis_host_stats_get": (_Status, [_Int, _Pointer(CStats)]),
    "genesis_host_stats_reset_peak": (_Status, [_Int]),
    "genesis_torch_pinned_install": (_Status, [_Address, _Size, _Address]),
    "genesis_torch_pinned_serve": (None, [_Int]),
    "genesis_torch_pinned_next": (None, [_Int]),
    "genesis_torch_adopt_next": (None, [_Address]),
    "genesis_tag_push": (_Status, [_Text]),
    "genesis_tag_push_with": (_Status, [_Text, _Int]),
    "genesis_tag_pop": (_Status, []),
    "genesis_tag_limit_set": (_Status, [_Text, _Int, _Size]),
    "genesis_tags_visit": (_Status, [_Int, TagVisitor, ctypes.c_void_p]),
    "genesis_tag_pause": (_Status, [_Text, _Int]),
    "genesis_tag_pause_with": (_Status, [_Text, _Int, ctypes.c_uint64]),
    "genesis_tag_resume": (_Status, [_Text]),
    "genesis_tags_resume": (_Status, []),
    "genesis_tag_backup_get": (_Status, [_Address, _Size, _Pointer(_Address)]),
    "genesis_private_pool_tag_set": (_Status, [_Int, CPoolId, _Text, _Int]),
    "genesis_last_error_clear": (None, []),
    "genesis_tag_generation_get": (_Status, [_Text, _Pointer(ctypes.c_uint64)]),
    "genesis_peer_access_enable": (_Status, [_Int, _Int]),
    "genesis_trace_start": (_Status, [_Text]),
    "genesis_trace_flush": (_Status, []),
    "genesis_trace_iteration": (_Status, [ctypes.c_uint32]),
    "genesis_trace_stop": (_Status, []),
    "genesis_profile_start": (_Status, []),
    "genesis_profile_stop": (_Status, []),
    "genesis_profile_write": (_Status, [_Text]),
    "genesis_snapshot_write": (_Status, [_Text]),
    "genesis_torch_history_start": (_Status, [_Size, _Int, _Text, _Int]),
    "genesis_torch_history_stop": (_Status, []),
    "genesis_torch_history_write": (_Status, [_Text]),
    "genesis_torch_metadata_set": (_Status, [_Text]),
    "genesis_torch_trace_set": (None, [_Address, _Address]),
    "genesis_torch_shortage_observer_set": (None, [_Address]),
    "genesis_range_push": (_Status, [_Text]),
    "genesis_range_pop": (_Status, []),
    "genesis_mark_add": (_Status, [_Text]),
    "genesis_last_error_get": (_Status, []),
    "genesis_device_count_get": (_Status, [_Pointer(_Int)]),
    "genesis_backend_get": (_Status, [_Pointer(_Text)]),
    "genesis_malloc": (_Address, [_Size, _Int, _Address]),
    "genesis_free": (None, [_Address, _Size, _Int, _Address]),
    "genesis_torch_malloc_alone": (_Address, [_Size, _Int, _Address]),
    "genesis_block_info_get": (_Status, [_Address, _Pointer(CBlockInfo)]),
    "genesis_block_release": (_Status, [_Address]),
    "genesis_block_pause": (_Status, [_Address]),
    "genesis_block_resume": (_Status, [_Address]),
    "genesis_block_export": (_Status, [_Address, ctypes.c_char_p]),
    "genesis_block_discard": (_Status, [ctypes.c_char_p]),
    "genesis_block_record_stream": (_Status, [_Address, _Address]),
    "genesis_stream_wait": (_Status, [_Int, _Address, _Address]),
    "genesis_onnxruntime_functions_get": (
        _Status,
        [_Int, _Pointer(_structs.COnnxruntimeFunctions)],
    ),
    "genesis_dlpack_buffer_create": (_Status, [_Size, _Int, _Address, _Pointer(_Address)]),
    "genesis_dlpack_host_buffer_create": (_Status, [_Size, _Int, _Pointer(_Address)]),
    "genesis_dlpack_buffer_data_get": (_Address, [_Address]),
    "genesis_dlpack_buffer_import": (_Status, [ctypes.c_char_p, _Int, _Pointer(_Address)]),
    "genesis_dlpack_buffer_record_stream": (_Status, [_Address, _Address]),
    "genesis_dlpack_buffer_release": (None, [_Address]),
    "genesis_dlpack_tensor_create": (
        _Status,
        [
            _Address,
            ctypes.c_uint8,
            ctypes.c_uint8,
            ctypes.c_uint16,
            _Int,
            _Pointer(ctypes.c_int64),
            _Int,
            _Pointer(_Address),
        ],
    ),
}

#: The same of functions that are in no header, because others have named them.
_NAMED_BY_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "tms_set_current_tag": (None, [_Text]),
    "tms_get_current_tag": (_Text, []),
    "tms_set_interesting_region": (None, [ctypes.c_bool]),
    "tms_get_interesting_region": (ctypes.c_bool, []),
    "tms_set_enable_cpu_backup": (None, [ctypes.c_bool]),
    "tms_get_enable_cpu_backup": (ctypes.c_bool, []),
    "tms_set_cpu_backup_backend": (None, [_Text]),
    "tms_get_cpu_backup_backend": (_Text, []),
    "tms_set_enable_disk_backup": (None, [ctypes.c_bool]),
    "tms_get_enable_disk_backup": (ctypes.c_bool, []),
    "tms_set_disk_backup_dir": (None, [_Text]),
    "tms_pause": (_Status, [_Text]),
    "tms_resume": (_Status, [_Text]),
    "tms_set_retain_cpu_backup": (None, [ctypes.c_bool]),
    "tms_get_retain_cpu_backup": (ctypes.c_bool, []),
    "tms_get_cpu_backup_pointer": (_Address, [_Address, ctypes.c_uint64]),
    "set_memory_margin_bytes": (None, [ctypes.c_uint64]),
}


def _candidates() -> list[Path]:
    named = os.environ.get("GENESIS_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    target = os.environ.get("CARGO_TARGET_DIR")
    root = package.parent.parent
    build = root / target if target else root / "target"
    return [package / "lib" / FILE_NAME, build / "release" / FILE_NAME, build / "debug" / FILE_NAME]


@functools.cache
def path() -> Path:
    """The library's file."""
    candidates = _candidates()
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise LibraryNotFoundError(
        f"{FILE_NAME} was not found (looked for {looked}); build it with "
        "`cargo build --release`, or let GENESIS_LIBRARY name it"
    )


@functools.cache
def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path()))
    except OSError as error:
        if isinstance(error, LibraryNotFoundError):
            raise
        raise LibraryNotFoundError(f"{path()} cannot be loaded: {error}") from error


@functools.cache
def has(name: str) -> bool:
    """Returns true if the library has a function of that name."""
    return hasattr(_load(), name)


@functools.cache
def function(name: str) -> Any:
    """The function ``name``, with its C types."""
    if not has(name):
        raise NotImplementedError(f"{path()} has no {name}: it is older than this package")
    loaded = getattr(_load(), name)
    known = _NAMED_BY_OTHERS if name in _NAMED_BY_OTHERS else _PROTOTYPES
    loaded.restype, loaded.argtypes = known[name]
    return loaded


def address(name: str) -> Optional[int]:
    """The address of a function, for other code to call; ``None`` if it does not exist."""
    if not has(name):
        return None
    return ctypes.cast(getattr(_load(), name), ctypes.c_void_p).value


def check(status: int) -> None:
    """Raises the library's error if ``status``, of this thread's last call, is a failure."""
    if status == SUCCESS:
        return
    line = function("genesis_last_error_message_get")() or b""
    text = line or function("genesis_status_text_get")(status)
    raise _ERRORS.get(status, GenesisError)(status, text.decode(errors="replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status, and raises if the call failed."""
    check(function(name)(*arguments))
