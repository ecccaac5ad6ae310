//! All that a machine keeps, under its lock: the tables together, and what several of them need.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::call::Call;
use crate::code::{Code, Result};
use crate::config::{Config, Progress};
use crate::quiet::Quiet;
use crate::room::Room;
use crate::slab::Slab;
use crate::store::{Common, Notes, Piece, Store};
use crate::tables::{
    AddressSpace, Capture, Context, Detector, Device, Effect, Event, HostMemory, ManagedPages,
    Memory, Script, StreamTable,
};
use crate::usage::Usage;
use crate::violation::Violation;

/// How many violations are kept; later ones are dropped. So a program that goes on after the
/// first thousands does not fill the host's memory.
const MOST_KEPT: usize = 10_000;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) store: Store,
    pub(crate) space: AddressSpace,
    pub(crate) physical: Slab<Memory>,
    pub(crate) managed: ManagedPages,
    pub(crate) host_memory: HostMemory,
    /// Memory of the program's that is page-locked.
    pub(crate) registered: HostMemory,
    pub(crate) streams: StreamTable,
    pub(crate) events: Slab<Event>,
    pub(crate) captures: Slab<Capture>,
    /// What all machines of one file hold; `None`: the devices are this machine's alone.
    pub(crate) common: Option<Common>,
    /// What other processes can read; made with the first handle for one.
    pub(crate) notes: Option<Notes>,
    /// Allocations of other processes, by context and handle.
    pub(crate) opened: HashMap<(u32, [u8; 64]), u64>,
    /// The events that have notes of this process.
    pub(crate) noted_events: Vec<u64>,
    pub(crate) progress: Progress,
    pub(crate) detector: Option<Detector>,
    /// Collected until a test takes them.
    pub(crate) violations: Vec<Violation>,
    /// Shared with the machine.
    pub(crate) quiet: Arc<Quiet>,
    /// Shared with the machine.
    pub(crate) room: Arc<Room>,
    /// True if anything was completed, or can be, after the lock was taken.
    pub(crate) has_moved: bool,
    pub(crate) script: Script,
}

impl State {
    /// The state of a new machine. `INVALID_VALUE` if it cannot be as `config` says,
    /// `OUT_OF_MEMORY` if the host lacks address space or files.
    pub(crate) fn new(config: Config) -> Result<Self> {
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
        Ok(Self {
            devices: config.devices.iter().map(Device::new).collect(),
            contexts: (0..count as u32).map(Context::primary).collect(),
            space: AddressSpace::new(base, bytes, config.descending_addresses),
            physical: Slab::default(),
            managed: ManagedPages::default(),
            host_memory: HostMemory::default(),
            registered: HostMemory::default(),
            common: config
                .common
                .as_deref()
                .map(|path| Common::open(path, count as u32))
                .transpose()?,
            streams: StreamTable::new(count as u32),
            events: Slab::default(),
            captures: Slab::default(),
            notes: None,
            opened: HashMap::new(),
            noted_events: Vec::new(),
            progress: config.progress,
            detector: config.detect_races.then(Detector::default),
            violations: Vec::new(),
            quiet: Arc::new(Quiet::new(count)),
            room: Arc::new(Room::default()),
            has_moved: false,
            script: Script::default(),
            store,
            config,
        })
    }

    /// Returns true if the machine is quiet: see `quiet`.
    pub(crate) fn is_quiet(&self) -> bool {
        self.progress == Progress::Automatic
            && self.streams.queued == 0
            && self.streams.held == 0
            && self.captures.len() == 0
            && self.detector.is_none()
            && self.script.is_empty()
    }

    pub(crate) fn device(&self, device: u32) -> Result<&Device> {
        self.devices.get(device as usize).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn device_mut(&mut self, device: u32) -> Result<&mut Device> {
        self.devices.get_mut(device as usize).ok_or(Code::INVALID_DEVICE)
    }

    /// The device of a context that is alive.
    pub(crate) fn context_device(&self, context: u32) -> Result<u32> {
        match self.contexts.get(context as usize) {
            Some(entry) if entry.is_alive => Ok(entry.device),
            Some(_) => Err(Code::CONTEXT_IS_DESTROYED),
            None => Err(Code::INVALID_DEVICE),
        }
    }

    /// Counts a call in `context`, charges it, and applies the fault script.
    pub(crate) fn count(&mut self, context: u32, call: Call) -> Result<()> {
        let device = self.context_device(context)?;
        let entry = self.devices.get_mut(device as usize).ok_or(Code::INVALID_DEVICE)?;
        entry.usage.timed(|usage| usage.charge_call(call, &self.config.costs));
        if self.script.is_empty() {
            return Ok(());
        }
        match self.script.strike(device, call) {
            Some(Effect::Fail(code)) => return Err(code),
            Some(Effect::DelayNs(more_ns)) => entry.usage.timed(|usage| usage.charge_ns(more_ns)),
            None => {}
        }
        Ok(())
    }

    /// Charges what a call that succeeded costs beyond its least price.
    pub(crate) fn charge_size(&mut self, device: u32, call: Call, bytes: u64, mappings: u64) {
        if let Some(entry) = self.devices.get_mut(device as usize) {
            let costs = &self.config.costs;
            entry.usage.timed(|usage| usage.charge_size(call, costs, bytes, mappings));
        }
    }

    /// What was asked of `device`, with the lock and without.
    pub(crate) fn usage(&self, device: u32) -> Result<Usage> {
        let mut usage = self.device(device)?.usage;
        self.quiet.add_to(&mut usage, device, &self.config.costs);
        Ok(usage)
    }

    pub(crate) fn report(&mut self, violation: Violation) {
        if self.violations.len() < MOST_KEPT {
            self.violations.push(violation);
            self.quiet.has_violations.store(true, Ordering::Release);
        }
    }

    /// Counts `bytes` of `device` as used, for which pages of managed memory are evicted. Fails if
    /// fewer are available.
    pub(crate) fn take_physical(&mut self, device: u32, bytes: u64) -> Result<()> {
        let evicted_ns = self.make_room(device, bytes);
        self.device_mut(device)?.usage.timed(|usage| usage.charge_ns(evicted_ns));
        let available_bytes = self.device(device)?.available_bytes;
        if let Some(common) = &mut self.common {
            common.take(device, bytes, available_bytes)?;
        }
        // Never more than all machines hold.
        self.device_mut(device)?.take(bytes)
    }

    /// Undoes [`Self::take_physical`].
    pub(crate) fn give_physical(&mut self, device: u32, bytes: u64) {
        self.uncount(device, bytes, None);
    }

    /// [`Self::give_physical`] of memory that may be a piece of its own.
    pub(crate) fn uncount(&mut self, device: u32, bytes: u64, piece: Option<Piece>) {
        if let Some(common) = &mut self.common {
            match piece {
                Some(piece) => common.let_go(piece),
                None => common.give(device, bytes),
            }
        }
        if let Some(entry) = self.devices.get_mut(device as usize) {
            entry.give(bytes);
        }
    }

    /// Makes `bytes` that were taken a piece that other machines can hold too.
    pub(crate) fn set_apart(&mut self, device: u32, bytes: u64) -> Result<Option<Piece>> {
        let piece = self.common.as_mut().map(|common| common.set_apart(device, bytes)).transpose();
        piece.inspect_err(|_| self.give_physical(device, bytes))
    }

    /// Memory that was given could not be returned to the host, and counts again.
    pub(crate) fn count_kept(&mut self, device: u32, bytes: u64) {
        if let Some(common) = &mut self.common {
            let _ = common.take(device, bytes, u64::MAX);
        }
        if let Some(entry) = self.devices.get_mut(device as usize) {
            entry.used_bytes += bytes;
        }
    }

    /// What can still be taken of `device`, in bytes.
    pub(crate) fn free_bytes(&mut self, device: u32) -> Result<u64> {
        let entry = self.device(device)?;
        let (available_bytes, used_bytes) = (entry.available_bytes, entry.used_bytes);
        let held_bytes = match &mut self.common {
            Some(common) => common.held_bytes(device)?,
            None => used_bytes,
        };
        Ok(available_bytes.saturating_sub(held_bytes))
    }

    /// One mapping of the memory `key` is gone.
    pub(crate) fn drop_mapping(&mut self, key: u64) {
        if let Some(memory) = self.physical.get_mut(key) {
            memory.mappings -= 1;
        }
        self.reclaim_if_dead(key);
    }

    /// Ends the life of memory that no handle and no mapping holds.
    pub(crate) fn reclaim_if_dead(&mut self, key: u64) {
        if !self.physical.get(key).is_some_and(Memory::is_dead) {
            return;
        }
        let Some(memory) = self.physical.remove(key) else { return };
        if let Some(extent) = memory.extent {
            self.uncount(memory.device, memory.counted_bytes(), memory.piece);
            self.store.destroy(extent);
        }
        if let Some(detector) = &mut self.detector {
            detector.forget(key);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (address, piece) in self.host_memory.drain() {
            self.store.host_free(address, piece.bytes);
        }
    }
}
