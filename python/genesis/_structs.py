"""The structs of the C interface that few modules use, as C has them."""

from __future__ import annotations

import ctypes


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
