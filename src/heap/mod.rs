//! The allocator: a request in, a block out.
//!
//! ```text
//! allocate:  device → size of the block → lane of the stream → lock → strategy → block
//!                                                               └ a miss → ladder
//! free:      directory → lane → lock → its record → strategy, or pending on other streams
//! ```
//!
//! In the steady state either is one uncontended lock and some arithmetic: no driver call, no
//! system call, no host allocation, nothing formatted. Every thread may call everything at any
//! time. Size, device and stream of a block come from its own record, so [`Heap::free`] takes
//! the pointer alone.
//!
//! Lock order: the index of lanes, one lane, what the device shares (`base::lock::rank`).

mod callbacks;
mod captures;
mod debug;
mod describe;
mod device;
mod elastic;
mod idle;
mod ladder;
mod lane;
mod lanes;
#[cfg(test)]
mod lanes_tests;
mod limits;
mod map;
mod notes;
mod opening;
mod peers;
mod policy;
mod pools;
mod release;
mod report;
mod streams;
mod tags;
mod waits;

pub use crate::order::{Stream, StreamName};
pub use callbacks::{CallbackId, OutOfMemoryCallback};
pub use debug::LiveDetail;
pub use describe::{DeviceDescription, StreamDescription};
pub use map::{Part, PartState, Region};
pub use pools::{PoolFilter, PoolId};
pub use report::LiveBlock;

use std::sync::Arc;
use std::time::Duration;

use crate::base::lock::{Guard, Lock, rank};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::config::Settings;
use crate::driver::{Backend, Device, Platform};
use crate::memory::{Directory, Slot, State};
use crate::observe::{EventStream, Log, Watermark};
use crate::order::{OWN_CONTEXT, RecordedStreams};
use callbacks::Callbacks;
use debug::Debugging;
use device::DeviceHeap;
use ladder::Request;
use lane::{Lane, LaneKey, LaneState, Owner};
use lanes::{Lanes, MAX_LANES};
use opening::DeviceSlot;
use policy::Policy;
use pools::PoolNumber;
use tags::Tags;

/// Lanes look for aged segments once in so many allocations.
const AGING_INTERVAL: u32 = 256;

/// Time since some fixed moment.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// An allocator over all devices of a platform.
pub struct Heap {
    settings: Lock<Settings, { rank::LEAF }>,
    policy: Policy,
    directory: Arc<Directory>,
    lanes: Lanes,
    backend: Backend,
    devices: Vec<DeviceSlot>,
    callbacks: Callbacks,
    tags: Tags,
    debugging: Debugging,
    clock: Clock,
    log: Arc<Log>,
    events: &'static EventStream,
}

/// Whom a heap talks to.
pub struct Surroundings {
    /// Where it says what it has to say.
    pub log: Arc<Log>,
    /// What it tells of all that happens.
    pub events: &'static EventStream,
    /// Where it has the time from.
    pub clock: Clock,
}

impl Surroundings {
    /// A log, the time since now, and nobody who wants to know of events.
    pub fn new(log: Arc<Log>) -> Self {
        let start = std::time::Instant::now();
        Self { log, events: EventStream::silent(), clock: Box::new(move || start.elapsed()) }
    }
}

impl Heap {
    /// A heap over `platform` with the `settings` given.
    pub fn new(platform: Platform, settings: &Settings, surroundings: Surroundings) -> Self {
        let Surroundings { log, events, clock } = surroundings;
        let directory = Arc::new(Directory::new());
        let device_count = platform.devices.len();
        let slots = platform.devices.into_iter();
        Self {
            settings: Lock::new(settings.clone()),
            policy: Policy::new(settings),
            lanes: Lanes::new(Arc::clone(&directory), device_count, events),
            directory,
            backend: platform.backend,
            devices: slots.map(DeviceSlot::new).collect(),
            callbacks: Callbacks::default(),
            tags: Tags::new(),
            debugging: Debugging::new(settings, device_count, events),
            clock,
            log,
            events,
        }
    }

    /// `requested_bytes` of memory on `device`, for use on `stream`; address 0 for 0 bytes.
    ///
    /// The address is a multiple of 512. Work queued on `stream` from now on may use the
    /// memory; contents are undefined. The default streams are those of `device`. `OutOfMemory`
    /// comes only after everything cached that could help has been tried.
    #[inline]
    pub fn allocate(
        &self,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: StreamHandle,
    ) -> Result<u64> {
        let stream = match requested_bytes {
            0 => Stream::lasting(stream),
            _ => self.identify(device, stream)?,
        };
        self.allocate_on(requested_bytes, device, stream)
    }

    /// [`Self::allocate`] on a stream that is identified already.
    #[inline(always)]
    pub fn allocate_on(
        &self,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: Stream,
    ) -> Result<u64> {
        let Stream { handle: stream, key } = stream;
        if requested_bytes == 0 {
            if self.events.is_on() {
                self.note_allocated(device, stream, 0, (0, 0), false);
            }
            return Ok(0);
        }
        let device = self.device(device)?;
        let Some(block_bytes) = device.sizing.block_bytes(requested_bytes) else {
            return Err(too_large(requested_bytes));
        };
        let pool = match device.pools.is_plain() {
            true => PoolNumber::COMMON,
            false => self.route(device, stream),
        };
        let key = LaneKey { stream: key, pool };
        loop {
            let lane = self.lane(device, key, stream)?;
            if lane.wants_fence() && !device.pools.is_routing() {
                lane.renew_fence(key, &device.contexts, &device.captures, stream);
            }
            let Some(mut state) = lane.lock_for(key) else {
                continue;
            };
            let state_ref = &mut *state;
            let mut prepared = device.prepare(lane, state_ref);
            let taken = match block_bytes < device.single_handle_bytes {
                true => match state_ref.strategy.take(&mut state_ref.blocks, block_bytes) {
                    None => device.take_pending(lane, state_ref, block_bytes, &mut prepared),
                    taken => taken,
                },
                false => None,
            };
            let Some(slot) = taken else {
                let number = lane.begin_climb(state_ref);
                drop(state);
                let request =
                    Request { device, lane, stream, requested_bytes, block_bytes, number };
                return self.allocate_slow(&request);
            };
            let (address, watermark) = lane.hand_out(state_ref, slot, requested_bytes);
            let tick = state_ref.tick;
            let noted_bytes = self.events.is_on().then(|| state_ref.blocks.get(slot).bytes);
            drop(state);
            if let Some(bytes) = noted_bytes {
                let block = (address, bytes);
                self.note_allocated(device.ordinal, stream, requested_bytes, block, false);
            }
            if watermark == Watermark::Crossed || prepared == Watermark::Crossed {
                self.settle(device);
            }
            if self.policy.heeds_allocations() {
                if self.policy.is_debugging() {
                    self.note_debugged(device, stream, address);
                }
                if tick % AGING_INTERVAL == 0 && self.policy.is_aging() {
                    self.release(device, self.policy.unused());
                }
            }
            return Ok(address);
        }
    }

    /// Gives back the block at `address`; 0 is no block and fine.
    ///
    /// `ForeignPointer` and `DoubleFree` change nothing. `DriverFailed` (Naive only): the
    /// driver did not take the memory back; it is kept and offered again later.
    #[inline]
    pub fn free(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        if self.events.is_on() {
            self.note_freeing(address);
        }
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        let mut state = lane.lock();
        let state_ref = &mut *state;
        let is_live =
            state_ref.blocks.find(slot, address).is_some_and(|block| block.state == State::Live);
        if !is_live {
            return self.free_unusual(lane, state, slot, address);
        }
        let block = state_ref.stamp_freed(slot);
        if self.policy.heeds_frees() {
            if self.policy.is_debugging() {
                drop(state);
                return self.free_debugged(lane, slot, address);
            }
            block.freed_second = self.seconds();
        }
        let watermark = lane.counters.on_free(block.class, block.requested_bytes, block.bytes);
        if block.recorded != RecordedStreams::NONE || !lane.keeps_blocks(state_ref) {
            return self.free_slow(lane, state, slot);
        }
        state_ref.strategy.give(&mut state_ref.blocks, slot);
        drop(state);
        if watermark == Watermark::Crossed
            && let Some(device) = self.opened(lane.device)
        {
            self.settle(device);
        }
        Ok(())
    }

    /// Frees what is no live block with memory: a paused one, or none.
    #[cold]
    fn free_unusual(
        &self,
        lane: &Lane,
        state: Guard<'_, LaneState, { rank::LANE }>,
        slot: Slot,
        address: u64,
    ) -> Result<()> {
        if self.policy.is_debugging() {
            drop(state);
            return self.free_debugged(lane, slot, address);
        }
        match state.blocks.find(slot, address) {
            Some(block) if block.state == State::Paused => self.free_paused(lane, state, slot),
            _ => {
                drop(state);
                Err(self.not_live(address))
            }
        }
    }

    /// The rest of a free that needs the driver: other streams used the block, or the strategy
    /// keeps nothing.
    #[cold]
    fn free_slow(
        &self,
        lane: &Lane,
        mut state: Guard<'_, LaneState, { rank::LANE }>,
        slot: Slot,
    ) -> Result<()> {
        let Some(device) = self.opened(lane.device) else {
            return Err(Error::new(Status::Internal, "a block of a device never opened"));
        };
        if lane.keeps_blocks(&state) {
            let watermark = lane.make_pending(state, &device.contexts, slot);
            if watermark == Watermark::Crossed {
                self.settle(device);
            }
            return Ok(());
        }
        // The driver waits for all streams itself.
        lane.forget_recorded(&mut state, slot);
        let state_ref = &mut *state;
        state_ref.strategy.give(&mut state_ref.blocks, slot);
        let segment = lane.begin_leave(state_ref, slot);
        drop(state);
        let freed = match self.may_capture(device) {
            // The driver would wait: it goes back when the capture has ended.
            true => {
                lane.end_leave(Some(segment));
                Ok(())
            }
            false => self.release_segment(device, lane, segment),
        };
        self.settle(device);
        freed
    }

    /// Asks `callback` for memory before a request fails, until it is removed.
    pub fn add_out_of_memory_callback(&self, callback: OutOfMemoryCallback) -> CallbackId {
        self.callbacks.add(callback)
    }

    /// Says whether there was such a callback. A call of it that has begun still finishes.
    pub fn remove_out_of_memory_callback(&self, id: CallbackId) -> bool {
        self.callbacks.remove(id)
    }

    /// Whether `device` exists and has been used; one that has not holds nothing.
    pub fn is_opened(&self, device: DeviceOrdinal) -> bool {
        self.opened(device).is_some()
    }

    /// Which backend the devices are of.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The settings in force; limits of single devices may differ.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// The driver of `device`, for what is no business of the heap's.
    pub fn driver(&self, device: DeviceOrdinal) -> Result<&Arc<dyn Device>> {
        Ok(&self.slot(device)?.driver)
    }

    /// Whether a block of this heap starts at `address`, live or not. Takes no lock.
    pub fn knows(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// Where the heap says what it has to say.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// How many devices there are.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// The name of `device`.
    pub fn device_name(&self, device: DeviceOrdinal) -> Result<String> {
        Ok(self.slot(device)?.driver.name())
    }

    /// Checks every structure of the heap; says which invariant does not hold. For tests: it
    /// takes time linear in the number of blocks, and counters of lanes in use at the same
    /// moment may be found in between.
    pub fn validate(&self) -> std::result::Result<(), String> {
        for device in self.devices.iter().filter_map(|slot| slot.heap.get()) {
            let mut held_bytes = 0;
            for lane in self.lanes.of(device.ordinal) {
                let state = lane.lock();
                let named =
                    |error| format!("device {}, lane {}: {error}", device.ordinal, lane.index);
                state.validate(&lane.counters).map_err(named)?;
                held_bytes += device.footprint_bytes(&state.blocks);
            }
            if let Some(pages) = &device.pages {
                held_bytes += self.validate_pages(device, pages)?;
            }
            self.validate_quarantine(device)?;
            let reserved_bytes = device.supply.reserved_bytes();
            if held_bytes != reserved_bytes {
                return Err(format!(
                    "device {}: lanes hold {held_bytes} bytes, {reserved_bytes} are reserved",
                    device.ordinal
                ));
            }
        }
        Ok(())
    }

    /// The block that the directory has at `address`: what it says now may change until the
    /// lane is locked.
    #[inline]
    fn find(&self, address: u64) -> Option<(&Lane, Slot)> {
        let entry = self.directory.get(address)?;
        Some((self.lanes.get(entry.lane)?, entry.slot))
    }

    #[inline]
    fn lane(&self, device: &DeviceHeap, key: LaneKey, stream: StreamHandle) -> Result<&Lane> {
        match device.lanes.find(&self.lanes, key) {
            Some(lane) => Ok(lane),
            None => self.add_lane(device, key, stream),
        }
    }

    #[cold]
    fn add_lane(&self, device: &DeviceHeap, key: LaneKey, stream: StreamHandle) -> Result<&Lane> {
        let context = match stream.is_default() {
            true => OWN_CONTEXT,
            false => device.contexts.of_stream(stream)?,
        };
        let owner = Owner { key, name: StreamName::of(stream), context };
        let mut settings = self.settings();
        settings.strategy.pool_type = device.pool_type;
        let find_or_add =
            || device.lanes.find_or_add(&self.lanes, &owner, &settings, &device.contexts);
        if let Some(lane) = find_or_add() {
            return Ok(lane);
        }
        // Streams that only cache something make way for one that needs something.
        self.drain_quarantine(device);
        self.release(device, release::Choice::All);
        find_or_add().ok_or_else(|| {
            let message = format!(
                "more than {MAX_LANES} streams hold memory of device {} at the same time",
                device.ordinal
            );
            Error::new(Status::OutOfMemory, message)
        })
    }

    fn seconds(&self) -> u32 {
        (self.clock)().as_secs() as u32
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Heap").field("devices", &self.devices).finish_non_exhaustive()
    }
}

#[cold]
fn too_large(requested_bytes: u64) -> Error {
    let message = format!("a request of {requested_bytes} bytes is larger than any device");
    Error::new(Status::OutOfMemory, message)
}
