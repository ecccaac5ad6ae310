//! `cudaDeviceProp`, laid out as in CUDA 13's `driver_types.h`, and in CUDA 12's.
//!
//! Filled from the table of attributes; what is not simulated stays 0.

use std::mem::{MaybeUninit, offset_of};

use crate::device;
use crate::settings::Settings;

/// `cudaDeviceProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Properties {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_device_node_mask: u32,
    total_global_mem: usize,
    shared_mem_per_block: usize,
    regs_per_block: i32,
    warp_size: i32,
    mem_pitch: usize,
    max_threads_per_block: i32,
    max_threads_dim: [i32; 3],
    max_grid_size: [i32; 3],
    total_const_mem: usize,
    major: i32,
    minor: i32,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    multi_processor_count: i32,
    integrated: i32,
    can_map_host_memory: i32,
    max_texture1d: i32,
    max_texture1d_mipmap: i32,
    max_texture2d: [i32; 2],
    max_texture2d_mipmap: [i32; 2],
    max_texture2d_linear: [i32; 3],
    max_texture2d_gather: [i32; 2],
    max_texture3d: [i32; 3],
    max_texture3d_alt: [i32; 3],
    max_texture_cubemap: i32,
    max_texture1d_layered: [i32; 2],
    max_texture2d_layered: [i32; 3],
    max_texture_cubemap_layered: [i32; 2],
    max_surface1d: i32,
    max_surface2d: [i32; 2],
    max_surface3d: [i32; 3],
    max_surface1d_layered: [i32; 2],
    max_surface2d_layered: [i32; 3],
    max_surface_cubemap: i32,
    max_surface_cubemap_layered: [i32; 2],
    surface_alignment: usize,
    concurrent_kernels: i32,
    ecc_enabled: i32,
    pci_bus_id: i32,
    pci_device_id: i32,
    pci_domain_id: i32,
    tcc_driver: i32,
    async_engine_count: i32,
    unified_addressing: i32,
    memory_bus_width: i32,
    l2_cache_size: i32,
    persisting_l2_cache_max_size: i32,
    max_threads_per_multi_processor: i32,
    stream_priorities_supported: i32,
    global_l1_cache_supported: i32,
    local_l1_cache_supported: i32,
    shared_mem_per_multiprocessor: usize,
    regs_per_multiprocessor: i32,
    managed_memory: i32,
    is_multi_gpu_board: i32,
    multi_gpu_board_group_id: i32,
    host_native_atomic_supported: i32,
    pageable_memory_access: i32,
    concurrent_managed_access: i32,
    compute_preemption_supported: i32,
    can_use_host_pointer_for_registered_mem: i32,
    cooperative_launch: i32,
    shared_mem_per_block_optin: usize,
    pageable_memory_access_uses_host_page_tables: i32,
    direct_managed_mem_access_from_host: i32,
    max_blocks_per_multi_processor: i32,
    access_policy_max_window_size: i32,
    reserved_shared_mem_per_block: usize,
    host_register_supported: i32,
    sparse_cuda_array_supported: i32,
    host_register_read_only_supported: i32,
    timeline_semaphore_interop_supported: i32,
    memory_pools_supported: i32,
    gpu_direct_rdma_supported: i32,
    gpu_direct_rdma_flush_writes_options: u32,
    gpu_direct_rdma_writes_ordering: i32,
    memory_pool_supported_handle_types: u32,
    deferred_mapping_cuda_array_supported: i32,
    ipc_event_supported: i32,
    cluster_launch: i32,
    unified_function_pointers: i32,
    device_numa_config: i32,
    device_numa_id: i32,
    mps_enabled: i32,
    host_numa_id: i32,
    gpu_pci_device_id: u32,
    gpu_pci_subsystem_id: u32,
    host_numa_multinode_ipc_supported: i32,
    reserved: [i32; 56],
}

const _: () = assert!(size_of::<Properties>() == 1008);

/// `cudaDeviceProp` of CUDA 12; what lies between fields is not initialised.
pub(super) type OfCuda12 = [MaybeUninit<u8>; 1032];

/// Runs of fields that both have: where each begins in CUDA 12, and above. Before each but the first,
/// CUDA 12 has one more number, which is not simulated.
const CUDA_12_RUNS: [(usize, usize); 10] = [
    (0, 0),
    (352, offset_of!(Properties, total_const_mem)),
    (388, offset_of!(Properties, multi_processor_count)),
    (396, offset_of!(Properties, integrated)),
    (408, offset_of!(Properties, max_texture1d)),
    (420, offset_of!(Properties, max_texture2d)),
    (612, offset_of!(Properties, memory_bus_width)),
    (640, offset_of!(Properties, shared_mem_per_multiprocessor)),
    (672, offset_of!(Properties, pageable_memory_access)),
    (696, offset_of!(Properties, shared_mem_per_block_optin)),
];

impl Properties {
    /// The same in CUDA 12's layout.
    pub(super) fn of_cuda_12(self) -> OfCuda12 {
        // SAFETY: bytes that need not be initialised.
        let bytes: [MaybeUninit<u8>; size_of::<Self>()] = unsafe { std::mem::transmute(self) };
        let mut told = [const { MaybeUninit::zeroed() }; size_of::<OfCuda12>()];
        let ends = CUDA_12_RUNS[1..].iter().map(|&(_, end)| end);
        let last = offset_of!(Properties, device_numa_config);
        for ((to, from), end) in CUDA_12_RUNS.into_iter().zip(ends.chain([last])) {
            told[to..][..end - from].copy_from_slice(&bytes[from..end]);
        }
        told
    }

    /// The properties of device `ordinal`.
    pub(super) fn new(ordinal: u32, settings: &Settings) -> Self {
        let get = |number| device::attribute(settings, ordinal, number).unwrap_or(0);
        let wide = |number| get(number) as usize;
        let mut name = [0; 256];
        let text = device::name(settings);
        name.iter_mut().zip(text.bytes().take(255)).for_each(|(place, byte)| *place = byte);
        // SAFETY: all fields are numbers, for which zero bytes are a value.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self {
            name,
            uuid: device::uuid(settings, ordinal),
            total_global_mem: settings.memory_bytes as usize,
            shared_mem_per_block: wide(8),
            regs_per_block: get(12),
            warp_size: get(10),
            mem_pitch: wide(11),
            max_threads_per_block: get(1),
            max_threads_dim: [2, 3, 4].map(get),
            max_grid_size: [5, 6, 7].map(get),
            total_const_mem: wide(9),
            major: get(75),
            minor: get(76),
            texture_alignment: wide(14),
            texture_pitch_alignment: wide(51),
            multi_processor_count: get(16),
            integrated: get(18),
            can_map_host_memory: get(19),
            max_texture1d: get(21),
            max_texture1d_mipmap: get(77),
            max_texture2d: [22, 23].map(get),
            max_texture2d_mipmap: [73, 74].map(get),
            max_texture2d_linear: [70, 71, 72].map(get),
            max_texture2d_gather: [45, 46].map(get),
            max_texture3d: [24, 25, 26].map(get),
            max_texture3d_alt: [47, 48, 49].map(get),
            max_texture_cubemap: get(52),
            max_texture1d_layered: [42, 43].map(get),
            max_texture2d_layered: [27, 28, 29].map(get),
            max_texture_cubemap_layered: [53, 54].map(get),
            max_surface1d: get(55),
            max_surface2d: [56, 57].map(get),
            max_surface3d: [58, 59, 60].map(get),
            max_surface1d_layered: [61, 62].map(get),
            max_surface2d_layered: [63, 64, 65].map(get),
            max_surface_cubemap: get(66),
            max_surface_cubemap_layered: [67, 68].map(get),
            surface_alignment: wide(30),
            concurrent_kernels: get(31),
            ecc_enabled: get(32),
            pci_bus_id: get(33),
            async_engine_count: get(40),
            unified_addressing: get(41),
            memory_bus_width: get(37),
            l2_cache_size: get(38),
            persisting_l2_cache_max_size: get(108),
            max_threads_per_multi_processor: get(39),
            stream_priorities_supported: get(78),
            global_l1_cache_supported: get(79),
            local_l1_cache_supported: get(80),
            shared_mem_per_multiprocessor: wide(81),
            regs_per_multiprocessor: get(82),
            managed_memory: get(83),
            concurrent_managed_access: get(89),
            compute_preemption_supported: get(90),
            can_use_host_pointer_for_registered_mem: get(91),
            cooperative_launch: get(95),
            shared_mem_per_block_optin: wide(97),
            max_blocks_per_multi_processor: get(106),
            access_policy_max_window_size: get(109),
            reserved_shared_mem_per_block: wide(111),
            host_register_supported: get(99),
            sparse_cuda_array_supported: get(112),
            memory_pools_supported: get(115),
            cluster_launch: get(120),
            unified_function_pointers: get(129),
            host_numa_id: get(134),
            ..zero
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets are those that a C compiler finds in the header.
    #[test]
    fn fields_lie_where_cuda_12s_header_has_them() {
        // SAFETY: all fields are numbers.
        let zero: Properties = unsafe { std::mem::zeroed() };
        let properties = Properties {
            major: 1,
            integrated: 2,
            max_texture1d: 3,
            max_texture2d: [4, 5],
            max_threads_per_multi_processor: 6,
            regs_per_multiprocessor: 7,
            concurrent_managed_access: 8,
            cooperative_launch: 9,
            memory_pools_supported: 10,
            unified_function_pointers: 11,
            ..zero
        };
        let told = properties.of_cuda_12();
        let number = |at: usize| {
            // SAFETY: a field of a structure of which all fields are set.
            let bytes = [0, 1, 2, 3].map(|byte| unsafe { told[at + byte].assume_init() });
            i32::from_ne_bytes(bytes)
        };
        let places = [360, 396, 408, 420, 424, 624, 648, 676, 688, 744, 776];
        assert_eq!(places.map(number), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
