//! A machine: its configuration, its state and the one lock around it.
//!
//! Every call takes the lock once, for its whole duration; no call waits while it holds it,
//! because waiting for a simulated device means running its queues (and a call that finds a queue
//! full, which nothing but another thread can empty, lets it go: `room`). So calls are atomic and
//! threads are ordered by the lock. With addresses only, a call takes well under a microsecond.
//! The few that programs make all the time do without the lock where they would change nothing:
//! see `quiet`.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address_space::AddressSpace;
use crate::allocation::SmallPages;
use crate::capture::Capture;
use crate::context::Context;
use crate::event::Event;
use crate::fault::Script;
use crate::host_memory::HostMemory;
use crate::physical::Memory;
use crate::quiet::Quiet;
use crate::race::Detector;
use crate::room::Room;
use crate::slab::Slab;
use crate::store::Store;
use crate::stream_table::StreamTable;
use crate::violation::Violation;
use crate::virtual_memory::HandleProperties;
use crate::{Call, Code, CostTable, Result, StoreKind, Usage};

/// How streams advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Work completes as soon as nothing it waits for is unfinished: at once, unless a stream
    /// is held.
    Automatic,
    /// Work completes when a test advances its stream, or when the host waits for it.
    Manual,
}

/// One device of a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Physical memory, in bytes.
    pub capacity_bytes: u64,
    /// The granule of virtual memory management and of large allocations, in bytes: a power of
    /// two, at least 4096.
    pub granularity_bytes: u64,
    /// Whether the device has virtual memory management.
    pub virtual_memory: bool,
    /// What handles of the device can be made to have.
    pub handles: HandleProperties,
}

/// What a machine is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The devices, by ordinal; 1 to 64.
    pub devices: Vec<DeviceConfig>,
    /// Real bytes, or addresses only.
    pub store: StoreKind,
    /// All device address space, in bytes; `None`: as much as the store likes to have. Small
    /// values provoke its exhaustion.
    pub address_space_bytes: Option<u64>,
    /// Whether address space is handed out from its end: an allocator that prefers low
    /// addresses then takes the youngest memory first, and otherwise the oldest.
    pub descending_addresses: bool,
    /// Host memory that may be pinned, in bytes.
    pub host_memory_bytes: u64,
    /// Whether pinned host memory can be read and written, whatever the store.
    pub host_bytes: bool,
    /// Whether devices can be given access to each other's memory.
    pub peer_access: bool,
    /// How streams advance, to begin with.
    pub progress: Progress,
    /// Whether a stream handle never seen before names a non-blocking stream of the device it
    /// is used with, created then and there.
    pub implicit_streams: bool,
    /// How many operations may wait in one stream: whoever enqueues another one waits for room.
    pub queue_depth: usize,
    /// How many mappings may be accessible at once, on all devices together: beyond them
    /// `cuMemSetAccess` answers `OUT_OF_MEMORY`.
    pub most_mappings: u64,
    /// Whether the race detector is on, to begin with.
    pub detect_races: bool,
    /// What calls cost.
    pub costs: CostTable,
}

impl Config {
    /// `devices` devices of `capacity_bytes` with 2 MiB granules and virtual memory management;
    /// handles that can be shared by file descriptor and used for RDMA but not shared over a
    /// fabric; peer access, automatic progress, implicit streams, no race detector; queues of
    /// 1024 operations and 520,000 mappings.
    pub fn new(store: StoreKind, devices: usize, capacity_bytes: u64) -> Self {
        let device = DeviceConfig {
            capacity_bytes,
            granularity_bytes: 2 << 20,
            virtual_memory: true,
            handles: HandleProperties { posix: true, fabric: false, rdma: true },
        };
        Self {
            devices: vec![device; devices],
            store,
            address_space_bytes: None,
            descending_addresses: false,
            host_memory_bytes: 1 << 38,
            host_bytes: store == StoreKind::RealBytes,
            peer_access: true,
            progress: Progress::Automatic,
            implicit_streams: true,
            // About a thousand launches go ahead of the device, stream by stream, and then a
            // launch takes as long as a kernel (NVIDIA's forum, topic 68937; the size of the
            // queue is what `CUDA_SCALE_LAUNCH_QUEUES` scales).
            queue_depth: 1024,
            // Measured on an H100 (napplesty/zero-cuda-graph); whether it is a device's limit or
            // a process's is not known, so it is that of the machine.
            most_mappings: 520_000,
            detect_races: false,
            costs: CostTable::default(),
        }
    }
}

/// A simulated machine. All methods may be called from any thread.
#[derive(Debug)]
pub struct Machine {
    store: StoreKind,
    /// What is known without the lock.
    pub(crate) quiet: Arc<Quiet>,
    /// Where threads wait that found a queue full.
    pub(crate) room: Arc<Room>,
    state: Mutex<State>,
}

/// The state, under the lock. Let go, it leaves word whether the machine is quiet.
#[derive(Debug)]
pub(crate) struct Locked<'a>(MutexGuard<'a, State>);

/// Free and total memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What could still be had.
    pub free_bytes: u64,
    /// The device's capacity, also while a fault script limits it.
    pub total_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) store: Store,
    pub(crate) space: AddressSpace,
    pub(crate) physical: Slab<Memory>,
    pub(crate) host_memory: HostMemory,
    pub(crate) streams: StreamTable,
    pub(crate) events: Slab<Event>,
    pub(crate) captures: Slab<Capture>,
    pub(crate) progress: Progress,
    pub(crate) detector: Option<Detector>,
    pub(crate) violations: Vec<Violation>,
    /// Shared with the machine.
    pub(crate) quiet: Arc<Quiet>,
    /// Shared with the machine.
    pub(crate) room: Arc<Room>,
    /// Whether anything was completed, or can be, since the lock was taken.
    pub(crate) has_moved: bool,
    pub(crate) script: Script,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) config: DeviceConfig,
    /// What may be in use, ≤ capacity.
    pub(crate) available_bytes: u64,
    pub(crate) used_bytes: u64,
    /// The most that ever was in use, since it was last asked to be forgotten.
    pub(crate) peak_used_bytes: u64,
    pub(crate) small: SmallPages,
    pub(crate) usage: Usage,
}

impl Machine {
    /// A machine as `config` says. `INVALID_VALUE` if it cannot be, `OUT_OF_MEMORY` if the host
    /// lacks address space or files.
    pub fn new(config: Config) -> Result<Arc<Self>> {
        if config.devices.is_empty() || config.devices.len() > 64 {
            return Err(Code::INVALID_VALUE);
        }
        let capacity_bytes = config.devices.iter().try_fold(0u64, |sum, device| {
            sum.checked_add(device.capacity_bytes).ok_or(Code::INVALID_VALUE)
        })?;
        let count = config.devices.len();
        let store = Store::new(&config, capacity_bytes)?;
        for device in &config.devices {
            let granule = device.granularity_bytes;
            if !granule.is_power_of_two() || granule < store.page_bytes().max(4096) {
                return Err(Code::INVALID_VALUE);
            }
        }
        let (base, bytes) = store.space();
        let kind = config.store;
        let (quiet, room) = (Arc::new(Quiet::new(count)), Arc::new(Room::default()));
        let state = State {
            devices: config.devices.iter().map(Device::new).collect(),
            contexts: (0..count as u32).map(Context::primary).collect(),
            space: AddressSpace::new(base, bytes, config.descending_addresses),
            physical: Slab::default(),
            host_memory: HostMemory::default(),
            streams: StreamTable::new(count as u32),
            events: Slab::default(),
            captures: Slab::default(),
            progress: config.progress,
            detector: config.detect_races.then(Detector::default),
            violations: Vec::new(),
            quiet: Arc::clone(&quiet),
            room: Arc::clone(&room),
            has_moved: false,
            script: Script::default(),
            store,
            config,
        };
        Ok(Arc::new(Self { store: kind, quiet, room, state: Mutex::new(state) }))
    }

    /// What the machine was made of.
    pub fn config(&self) -> Config {
        self.lock().config.clone()
    }

    /// Which store the machine has.
    pub fn store(&self) -> StoreKind {
        self.store
    }

    /// Free and total memory of the device of `context`.
    pub fn memory_info(&self, context: u32) -> Result<MemoryInfo> {
        let state = self.enter(context, Call::MemoryInfo)?;
        let entry = state.device(state.context_device(context)?)?;
        Ok(MemoryInfo {
            free_bytes: entry.available_bytes.saturating_sub(entry.used_bytes),
            total_bytes: entry.config.capacity_bytes,
        })
    }

    /// Whether `device` can be given access to memory of `peer`; not to its own, as CUDA has it.
    pub fn can_access_peer(&self, device: u32, peer: u32) -> Result<bool> {
        let state = self.enter(device, Call::CanAccessPeer)?;
        state.device(peer)?;
        Ok(device != peer && state.config.peer_access)
    }

    /// Lets `context` touch plain allocations of device `peer`; mapped memory is none of its
    /// business. `PEER_ACCESS_UNSUPPORTED` where [`Self::can_access_peer`] says no,
    /// `PEER_ACCESS_ALREADY_ENABLED` the second time.
    pub fn enable_peer_access(&self, context: u32, peer: u32) -> Result<()> {
        let mut state = self.lock();
        state.device(peer)?;
        if state.context_device(context)? == peer || !state.config.peer_access {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        let peers = &mut state.contexts[context as usize].peers;
        if *peers & 1 << peer != 0 {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        *peers |= 1 << peer;
        Ok(())
    }

    /// The state, for what is not a driver call.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state, for a driver call in `context`: counted, charged, and subject to the script.
    pub(crate) fn enter(&self, context: u32, call: Call) -> Result<Locked<'_>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let device = state.context_device(context)?;
        let entry = state.devices.get_mut(device as usize).ok_or(Code::INVALID_DEVICE)?;
        entry.usage.charge_call(call, &state.config.costs);
        if !state.script.is_empty() {
            state.apply_script(device, call)?;
        }
        Ok(guard)
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.quiet.set(self.0.is_quiet());
        if std::mem::take(&mut self.0.has_moved) {
            self.0.room.tell();
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (address, bytes) in self.host_memory.drain() {
            self.store.host_free(address, bytes);
        }
    }
}

impl State {
    pub(crate) fn device(&self, device: u32) -> Result<&Device> {
        self.devices.get(device as usize).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn device_mut(&mut self, device: u32) -> Result<&mut Device> {
        self.devices.get_mut(device as usize).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn charge_size(&mut self, device: u32, call: Call, bytes: u64, mappings: u64) {
        if let Some(entry) = self.devices.get_mut(device as usize) {
            entry.usage.charge_size(call, &self.config.costs, bytes, mappings);
        }
    }
}

impl Device {
    fn new(config: &DeviceConfig) -> Self {
        Self {
            config: config.clone(),
            available_bytes: config.capacity_bytes,
            used_bytes: 0,
            peak_used_bytes: 0,
            small: SmallPages::new(config.granularity_bytes),
            usage: Usage::default(),
        }
    }
}
