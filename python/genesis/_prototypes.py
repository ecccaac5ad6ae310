"""The functions of the C interface that Python calls, and callbacks, with their C types."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _structs

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
LiveBlockVisitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_structs.CLiveBlock))

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
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
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
    "genesis_stats_get": (_Status, [_Int, _Pointer(_structs.CStats)]),
    "genesis_stats_reset_peak": (_Status, [_Int]),
    "genesis_pool_stats_get": (_Status, [_Int, _Int, _Pointer(_structs.CPoolStats)]),
    "genesis_live_blocks_visit": (_Status, [_Int, _Size, LiveBlockVisitor, ctypes.c_void_p]),
    "genesis_neighbours_visit": (_Status, [_Int, NeighbourVisitor, ctypes.c_void_p]),
    "genesis_progress_callback_set": (_Status, [ProgressCallback, _Address]),
    "genesis_torch_pool_function_get": (_Status, [_structs.CPoolId, _Pointer(_Address)]),
    "genesis_torch_pool_function_release": (_Status, [_structs.CPoolId]),
    "genesis_private_pool_create": (
        _Status,
        [_Int, _structs.CPoolId, _Int, _Pointer(_structs.CPoolSource)],
    ),
    "genesis_private_pool_communication_create": (
        _Status,
        [_Int, _structs.CPoolId, _Pointer(_structs.CPoolRegistrar)],
    ),
    "genesis_private_pool_communication_get": (
        _Status,
        [_Int, _structs.CPoolId, _Pointer(_structs.CPoolCommunication)],
    ),
    "genesis_private_pool_begin": (_Status, [_Int, _structs.CPoolId]),
    "genesis_private_pool_end": (_Status, [_Int, _structs.CPoolId]),
    "genesis_private_pool_hold": (_Status, [_Int, _structs.CPoolId, _Int]),
    "genesis_private_pool_release": (_Status, [_Int, _structs.CPoolId]),
    "genesis_private_pool_uses_get": (_Status, [_Int, _structs.CPoolId, _Pointer(ctypes.c_uint64)]),
    "genesis_private_pool_limit_set": (_Status, [_Int, _structs.CPoolId, _Size]),
    "genesis_private_pool_usage_get": (
        _Status,
        [_Int, _structs.CPoolId, _Pointer(_structs.CPoolUsage)],
    ),
    "genesis_private_pool_blocks_get": (
        _Status,
        [_Int, _structs.CPoolId, _Pointer(_structs.CPoolBlock), _Size, _Pointer(_Size)],
    ),
    "genesis_private_pool_blocks_place": (
        _Status,
        [_Int, _structs.CPoolId, _Pointer(_structs.CPoolBlock), _Size],
    ),
    "genesis_private_pool_arena_create": (_Status, [_Int, _structs.CPoolId]),
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
    "genesis_host_stats_get": (_Status, [_Int, _Pointer(_structs.CStats)]),
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
    "genesis_private_pool_tag_set": (_Status, [_Int, _structs.CPoolId, _Text, _Int]),
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
    "genesis_block_info_get": (_Status, [_Address, _Pointer(_structs.CBlockInfo)]),
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
NAMED_BY_OTHERS: dict[str, tuple[Any, list[Any]]] = {
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
