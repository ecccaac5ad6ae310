//! What a machine is made of, and how it behaves to begin with.

use std::path::PathBuf;

use crate::cost::CostTable;

/// Which store a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Memory that can be read and written through the device's addresses; aliases show the
    /// same bytes, and an address without access faults.
    RealBytes,
    /// Addresses that must never be dereferenced. No system call, any size.
    AddressesOnly,
}

/// How streams advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Work completes as soon as everything it waits for has completed: at once, unless a
    /// stream is held.
    Automatic,
    /// Work completes when a test advances its stream, or when the host waits for it.
    Manual,
}

/// What a handle can be used for other than mapping it in this process. Either the properties
/// requested of one handle, or those that a device supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleProperties {
    /// It can be shared with other processes as a file descriptor.
    pub posix: bool,
    /// It can be shared with other machines of one fabric.
    pub fabric: bool,
    /// Devices other than GPUs can reach its memory: GPUDirect RDMA.
    pub rdma: bool,
}

impl HandleProperties {
    /// Returns true if a device that can make `self` can make `wanted`.
    pub(crate) const fn cover(self, wanted: Self) -> bool {
        (self.posix || !wanted.posix)
            && (self.fabric || !wanted.fabric)
            && (self.rdma || !wanted.rdma)
    }
}

/// Which managed memory a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedAccess {
    /// None.
    None,
    /// It is on the device while that uses it, and no more than fits there: Windows, WSL, Tegra.
    Exclusive,
    /// Its pages move when they are touched, and it may be more than fits: Linux, from Pascal on
    /// (`CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`).
    Concurrent,
}

/// One device of a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Physical memory, in bytes.
    pub capacity_bytes: u64,
    /// The granule of virtual memory management and of large allocations, in bytes: a power of
    /// two, at least 4096.
    pub granularity_bytes: u64,
    /// True if the device has virtual memory management.
    pub virtual_memory: bool,
    /// Which properties handles of the device can have.
    pub handles: HandleProperties,
    /// True if the process has an IMEX channel. Without one, memory that can be shared over a fabric
    /// is refused when it is created, although the device can make it.
    pub imex_channel: bool,
    /// Which managed memory it has.
    pub managed: ManagedAccess,
}

/// What a machine is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The devices, by ordinal; 1 to 64.
    pub devices: Vec<DeviceConfig>,
    /// Real bytes, or addresses only.
    pub store: StoreKind,
    /// A file: machines that name the same one have the same devices, whose memory they count
    /// together, in whatever processes they are. `None`: the devices are this machine's alone.
    pub common: Option<PathBuf>,
    /// All device address space, in bytes; `None`: the store's default. Small values provoke
    /// its exhaustion.
    pub address_space_bytes: Option<u64>,
    /// True if address space is handed out from its end. An allocator that prefers low
    /// addresses then takes the youngest memory first, and otherwise the oldest.
    pub descending_addresses: bool,
    /// Host memory for what is pinned and for pages of managed memory, in bytes.
    pub host_memory_bytes: u64,
    /// True if pinned host memory can be read and written, with either store.
    pub host_bytes: bool,
    /// True if devices can be given access to each other's memory.
    pub peer_access: bool,
    /// How streams advance, to begin with.
    pub progress: Progress,
    /// True if an unknown stream handle names a non-blocking stream of the device it is used
    /// with, which is then created.
    pub implicit_streams: bool,
    /// How many operations may wait in one stream. A call that enqueues another one waits for
    /// room.
    pub queue_depth: usize,
    /// How many mappings may be accessible at once, on all devices together. Beyond them
    /// `cuMemSetAccess` returns `OUT_OF_MEMORY`.
    pub most_mappings: u64,
    /// True if the race detector is on, to begin with.
    pub detect_races: bool,
    /// What calls cost.
    pub costs: CostTable,
    /// True if a call also takes its least price of real time, during which other threads go on, if
    /// that is as long as the system lets a thread sleep. Otherwise threads seldom meet in a call.
    pub takes_time: bool,
}

impl Config {
    /// `devices` devices of `capacity_bytes` with 2 MiB granules and virtual memory management.
    /// Handles can be shared by file descriptor and used for RDMA, but not shared over a
    /// fabric. Managed memory with concurrent access, peer access, automatic progress, implicit streams, no race detector; queues of
    /// 1024 operations and 520,000 mappings.
    pub fn new(store: StoreKind, devices: usize, capacity_bytes: u64) -> Self {
        let device = DeviceConfig {
            capacity_bytes,
            granularity_bytes: 2 << 20,
            virtual_memory: true,
            handles: HandleProperties { posix: true, fabric: false, rdma: true },
            imex_channel: true,
            managed: ManagedAccess::Concurrent,
        };
        Self {
            devices: vec![device; devices],
            store,
            common: None,
            address_space_bytes: None,
            descending_addresses: false,
            host_memory_bytes: 1 << 38,
            host_bytes: store == StoreKind::RealBytes,
            peer_access: true,
            progress: Progress::Automatic,
            implicit_streams: true,
            // About a thousand launches of a stream go ahead of the device; beyond them, a
            // launch takes as long as a kernel (NVIDIA's forum, topic 68937; the size of the
            // queue is what `CUDA_SCALE_LAUNCH_QUEUES` scales).
            queue_depth: 1024,
            // Measured on an H100 (napplesty/zero-cuda-graph). Whether the limit is a device's
            // or a process's is not known; here it is the machine's.
            most_mappings: 520_000,
            detect_races: false,
            costs: CostTable::default(),
            takes_time: false,
        }
    }
}
