"""The structs of the C interface, as C has them."""

from __future__ import annotations

import ctypes


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


class CMemoryUse(ctypes.Structure):
    """``genesis_memory_use``."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("any_thread", ctypes.c_int),
    ]


class CArenaOptions(ctypes.Structure):
    """``genesis_arena_options``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("memory", CMemoryUse),
        ("chunk_bytes", ctypes.c_size_t),
        ("limit_bytes", ctypes.c_size_t),
    ]


class CArenaPosition(ctypes.Structure):
    """``genesis_arena_position``."""

    _fields_ = [("number", ctypes.c_uint64)]


class CArenaStats(ctypes.Structure):
    """``genesis_arena_stats``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, ctypes.c_uint64)
            for name in ("used_bytes", "held_bytes", "high_water_bytes", "chunks", "resets")
        ),
    ]


class CFixedPoolOptions(ctypes.Structure):
    """``genesis_fixed_pool_options``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("memory", CMemoryUse),
        *((name, ctypes.c_size_t) for name in ("block_bytes", "alignment", "count", "growth")),
    ]


class CFixedPoolStats(ctypes.Structure):
    """``genesis_fixed_pool_stats``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, ctypes.c_uint64)
            for name in ("live_blocks", "peak_live_blocks", "blocks", "held_bytes", "refusals")
        ),
    ]


class CMemoryTier(ctypes.Structure):
    """``genesis_memory_tier``."""

    _fields_ = [("block_bytes", ctypes.c_size_t), ("count", ctypes.c_size_t)]


class CMemoryManagerOptions(ctypes.Structure):
    """``genesis_memory_manager_options``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("memory", CMemoryUse),
        ("tiers", ctypes.POINTER(CMemoryTier)),
        ("tier_count", ctypes.c_size_t),
        ("arena_bytes", ctypes.c_size_t),
    ]


class CMemoryManagerStats(ctypes.Structure):
    """``genesis_memory_manager_stats``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "pool_blocks",
                "arena_blocks",
                "arena_used_bytes",
                "held_bytes",
                "overflows",
            )
        ),
    ]


class CPoolRegistrar(ctypes.Structure):
    """``genesis_pool_registrar``: addresses."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("user_data", "map", "unmap")]


class CPoolCommunication(ctypes.Structure):
    """``genesis_pool_communication``."""

    _fields_ = [
        ("granularity_bytes", ctypes.c_size_t),
        ("handle_types", ctypes.c_int),
        ("is_rdma", ctypes.c_int),
        ("peer_count", ctypes.c_size_t),
    ]


class CNeighbour(ctypes.Structure):
    """``genesis_neighbour``."""

    _fields_ = [
        ("process", ctypes.c_int),
        ("is_own", ctypes.c_int),
        *(
            (name, ctypes.c_size_t)
            for name in (
                "live_bytes",
                "cached_bytes",
                "held_bytes",
                "guarantee_bytes",
                "limit_bytes",
                "part_bytes",
            )
        ),
        ("program", ctypes.c_char_p),
    ]


class CForecast(ctypes.Structure):
    """``genesis_forecast``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, ctypes.c_uint64) for name in ("steps", "peak_bytes", "possible_bytes")),
        *(
            (name, ctypes.c_double)
            for name in ("bytes_per_step", "steps_left", "fewest_steps_left", "confidence")
        ),
        ("is_leak", ctypes.c_int),
    ]


class COptimization(ctypes.Structure):
    """``genesis_optimization``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "reserved_bytes",
                "released_bytes",
                "compacted_bytes",
                "driver_calls",
                "driver_nanoseconds",
                "nanoseconds",
            )
        ),
    ]


class CCompaction(ctypes.Structure):
    """``genesis_compaction``."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("reserved_bytes", "free_bytes", "released_bytes")
    ]


class CTagUsage(ctypes.Structure):
    """``genesis_tag_usage``."""

    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("device", ctypes.c_int),
        ("limit_bytes", ctypes.c_size_t),
        ("live_bytes", ctypes.c_size_t),
        ("live_blocks", ctypes.c_size_t),
        ("refusals", ctypes.c_uint64),
    ]


class COnnxruntimeFunctions(ctypes.Structure):
    """``genesis_onnxruntime_functions``: addresses."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("alloc", "free", "empty_cache")]
