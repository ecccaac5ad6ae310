//! One device of the heap: the state that its lanes share, and what is done with all of them.
//!
//! [`DeviceState`] is that state. [`DeviceHeap`] is the state together with its heap; every
//! operation on one device is a method of it, in the file of its topic.

use std::sync::Arc;

use super::attempts::Attempts;
use super::captures::Captures;
use super::choice::Choice;
use super::lane::{Lane, LaneGuard, LaneState};
use super::lanes::{LaneIndex, MAX_LANES};
use super::managed::{beyond_bytes, not_shared};
use super::owner::{LaneKey, Newcomer, Owner};
use super::pool_memory::Segments;
use super::pools::{PoolNumber, Pools};
use super::state::{Backing, DeviceHeap, DeviceState, Introductions, Join, Limits, Messages};
use crate::base::lock::Lock;
use crate::base::size::Bytes;
use crate::base::size::SizeClass;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::base::{CachePadded, Error, Result, Status, StreamHandle, host_memory};
use crate::config::{LogLevel, PoolType, Settings, dmem_limit_bytes};
use crate::driver::Device;
use crate::driver::guarded::Guarded;
use crate::memory::{BlockTable, Ledger, Slot};
use crate::observe::{
    Combined, EventStream, LaneCounters, Outside, Peaks, Snapshot, Tallies, Totals, Turn,
};
use crate::order::{Contexts, OWN_CONTEXT, StreamName};
use crate::strategy::Sizing;

impl DeviceState {
    /// Opens the device; the first call to its driver happens here. Log messages are added to
    /// `messages`: other threads wait for the device meanwhile, so no user code may run.
    pub(super) fn open(
        driver: Arc<dyn Device>,
        captures: Arc<Captures>,
        settings: &Settings,
        messages: &mut Messages,
        observer: &'static EventStream,
        join: &Join,
    ) -> Result<Self> {
        let ordinal = driver.ordinal();
        let events = observer.of(ordinal);
        let mut settings = settings.clone();
        let guarded = settings.debug.guard.then(|| guarded(&driver, messages)).flatten();
        let is_guarded = guarded.is_some();
        let driver = guarded.unwrap_or(driver);
        if is_guarded {
            settings.strategy.pool_type = PoolType::Naive;
        }
        let beyond_bytes = beyond_bytes(&*driver, &mut settings, messages)?;
        let backing = match beyond_bytes {
            Some(_) => Backing::Segments(Segments::new(Arc::clone(&driver), true)),
            None => Backing::open(&driver, &mut settings, events, messages)?,
        };
        let outer_limit_bytes = outer_limit_bytes(&*driver, &settings, messages);
        let total_bytes = driver.memory_info()?.total_bytes.min(outer_limit_bytes);
        let outer_limit_bytes = match beyond_bytes {
            // Managed memory is limited by nothing else.
            Some(bytes) => total_bytes.saturating_add(bytes),
            None => outer_limit_bytes,
        };
        let neighbours = match beyond_bytes {
            Some(_) => not_shared(ordinal, &settings, messages),
            None => join(&*driver, &settings, messages),
        };
        let device = Self {
            ordinal,
            name: driver.name(),
            pool_type: settings.strategy.pool_type,
            sizing: Sizing::new(&settings),
            always_missed_bytes: backing.always_missed_bytes(),
            backing,
            ledger: CachePadded(Ledger::new(total_bytes, neighbours, events)),
            is_guarded,
            beyond_bytes,
            contexts: Contexts::new(Arc::clone(&driver)),
            lane_index: LaneIndex::new(ordinal),
            coming: Lock::default(),
            kept_plan: Lock::default(),
            pools: Pools::default(),
            captures,
            attempts: CachePadded(Attempts::default()),
            introductions: Introductions::default(),
            tallies: CachePadded(Tallies::default()),
            waste: Arc::default(),
            limits: Lock::new(Limits {
                fraction: 1.0,
                bytes: None,
                outer_bytes: outer_limit_bytes,
            }),
            cache_limit_bytes: AtomicU64::new(settings.cache_size_bytes.unwrap_or(u64::MAX)),
            peaks: CachePadded(Combined::default()),
            watch: CachePadded(Lock::default()),
            live_peak_bytes: CachePadded(AtomicU64::new(0)),
            expected_peak_bytes: AtomicU64::new(0),
            driver,
        };
        device.set_memory_fraction(settings.memory_fraction);
        device.set_memory_limit(settings.memory_limit_bytes);
        Ok(device)
    }

    /// The physical memory under the backed blocks of a lane, in bytes.
    pub(super) fn footprint_bytes(&self, blocks: &BlockTable) -> u64 {
        if !self.is_guarded {
            return blocks.backed_bytes();
        }
        let backed = blocks.iter().filter(|(_, block)| block.state.is_backed());
        backed.map(|(_, block)| self.driver.footprint_bytes(block.bytes)).sum()
    }

    pub(super) fn memory_fraction(&self) -> f64 {
        self.limits.lock().fraction
    }

    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.limits.lock().bytes
    }

    pub(super) fn set_memory_fraction(&self, fraction: f64) {
        let mut limits = self.limits.lock();
        limits.fraction = fraction;
        self.apply(*limits);
    }

    pub(super) fn set_memory_limit(&self, bytes: Option<u64>) {
        let mut limits = self.limits.lock();
        limits.bytes = bytes;
        self.apply(*limits);
    }

    fn apply(&self, limits: Limits) {
        // With a fraction of 1 the driver decides; it knows what other processes hold.
        let fraction_bytes = if limits.fraction < 1.0 {
            (self.ledger.total_bytes() as f64 * limits.fraction) as u64
        } else {
            u64::MAX
        };
        let bytes = limits.bytes.unwrap_or(u64::MAX).min(limits.outer_bytes);
        self.ledger.set_allowed_bytes(bytes.min(fraction_bytes));
    }

    /// How many bytes more the device could reserve, beside those of other processes that share it.
    pub(super) fn left_bytes(&self) -> u64 {
        let left_bytes = self.usable_bytes().saturating_sub(self.ledger.reserved_bytes());
        left_bytes.min(self.ledger.shared_room_bytes())
    }

    /// The most bytes the device could reserve: the limit, or all of its memory.
    pub(super) fn usable_bytes(&self) -> u64 {
        let beyond_bytes = self.beyond_bytes.unwrap_or(0);
        self.ledger.allowed_bytes().min(self.ledger.total_bytes().saturating_add(beyond_bytes))
    }

    /// Whether its segments are managed memory.
    pub(super) fn is_managed(&self) -> bool {
        self.beyond_bytes.is_some()
    }

    pub(super) fn cache_limit_bytes(&self) -> u64 {
        self.cache_limit_bytes.load(Relaxed)
    }

    pub(super) fn set_cache_limit_bytes(&self, bytes: u64) {
        self.cache_limit_bytes.store(bytes, Relaxed);
    }
}

impl<'a> DeviceHeap<'a> {
    /// The lane of `key`, whose stream has the handle `stream`, with its lock held: while it is, and
    /// as long as it holds a block or a climb is under way, the lane stays that of `key`.
    #[inline(always)]
    pub(super) fn enter(
        self,
        key: LaneKey,
        stream: StreamHandle,
    ) -> Result<(&'a Lane, LaneGuard<'a>)> {
        loop {
            let Some(lane) = self.state.lane_index.find(&self.heap.lanes, key) else {
                return self.add_lane(key, stream);
            };
            if lane.wants_fence() {
                self.renew_fence(lane, key, stream);
            }
            if let Some(state) = lane.lock_for(key) {
                return Ok((lane, state));
            }
        }
    }

    #[cold]
    fn add_lane(self, key: LaneKey, stream: StreamHandle) -> Result<(&'a Lane, LaneGuard<'a>)> {
        host_memory::require()?;
        let context =
            if stream.is_default() { OWN_CONTEXT } else { self.contexts.of_stream(stream)? };
        if self.pool_type != PoolType::Naive {
            self.contexts.get(context).stock_up();
        }
        let lasts = self.heap.lasts(self.ordinal, key.stream);
        let owner = Owner { key, name: StreamName::of(stream), context, lasts };
        let mut settings = self.heap.settings();
        settings.strategy.pool_type = self.pool_type;
        if let Some(own) = self.pools.own(key.pool) {
            own.adapt(&mut settings);
        }
        let (contexts, captures) = (&self.state.contexts, &self.state.captures);
        let newcomer = Newcomer { owner, settings: &settings, contexts, captures };
        let find_or_add = || self.state.lane_index.find_or_add(&self.heap.lanes, &newcomer);
        if let Some(locked) = find_or_add() {
            return Ok(locked);
        }
        // Release what lanes only cache: a lane left empty can serve this stream.
        self.drain_quarantine();
        self.release(Choice::All);
        find_or_add().ok_or_else(|| {
            let message = format!(
                "more than {MAX_LANES} streams hold memory of device {} at the same time",
                self.ordinal
            );
            Error::new(Status::OutOfMemory, message)
        })
    }

    /// `lane` is left. One that was made for a stream to come stays, because the rest of a plan may
    /// still be made ready in it.
    pub(super) fn leave(self, lane: &Lane) {
        if !self.coming.lock().contains(&lane.index) {
            self.lane_index.add_left(lane.index);
        }
    }

    /// The pool that a request on `stream` of the calling thread belongs to.
    pub(super) fn pool_for(self, stream: StreamHandle) -> PoolNumber {
        if self.pools.is_begun()
            && let Some(number) = self.pools.route(stream)
        {
            return number;
        }
        self.current_tags()
    }

    /// The nesting of tags of the calling thread.
    pub(super) fn current_tags(self) -> PoolNumber {
        if !self.pools.is_tagged() {
            return PoolNumber::COMMON;
        }
        self.heap.tags.current_unless(|| self.pools.set_tagged(false))
    }

    /// Takes a free block of `lane`. Now and then, and always before a miss, it first frees the
    /// pending blocks whose events have completed.
    #[inline]
    pub(super) fn take(self, lane: &Lane, state: &mut LaneState, block_bytes: u64) -> Option<Slot> {
        if state.is_poll_due() && !self.pools.is_routing() {
            lane.poll(state, self.contexts.own());
        }
        if block_bytes >= self.always_missed_bytes {
            return None;
        }
        match state.strategy.take(&mut state.blocks, block_bytes) {
            None => self.take_pending(lane, state, block_bytes),
            taken => taken,
        }
    }

    #[cold]
    fn take_pending(self, lane: &Lane, state: &mut LaneState, block_bytes: u64) -> Option<Slot> {
        if !state.pending.has_events() || self.pools.is_routing() {
            return None;
        }
        lane.poll(state, self.contexts.own());
        state.strategy.take(&mut state.blocks, block_bytes)
    }

    /// Records the event that another lane wants, unless a stream may be captured.
    #[cold]
    pub(super) fn renew_fence(self, lane: &Lane, key: LaneKey, stream: StreamHandle) {
        if !self.pools.is_routing() {
            lane.renew_fence(key, &self.contexts, &self.captures, stream);
        }
    }

    /// Checks every structure of the device.
    pub(super) fn validate(self) -> std::result::Result<(), String> {
        let mut held_bytes = 0;
        for lane in self.lanes() {
            let state = lane.lock();
            let named = |error| format!("device {}, lane {}: {error}", self.ordinal, lane.index);
            state.validate(&lane.counters).map_err(named)?;
            held_bytes += self.footprint_bytes(&state.blocks);
        }
        held_bytes += self.backing.validate(self)?;
        self.validate_quarantine()?;
        let reserved_bytes = self.ledger.reserved_bytes();
        if held_bytes != reserved_bytes {
            return Err(format!(
                "device {}: lanes hold {held_bytes} bytes, {reserved_bytes} are reserved",
                self.ordinal
            ));
        }
        Ok(())
    }

    /// The lanes of the device.
    pub(super) fn lanes(self) -> impl Iterator<Item = &'a Lane> + Clone {
        self.heap.lanes.of(self.state.ordinal)
    }

    pub(super) fn counters(self) -> impl Iterator<Item = &'a LaneCounters> + Clone {
        self.lanes().map(|lane| &lane.counters)
    }

    /// What the lanes do not know when their levels are added up.
    pub(super) fn outside_of_lanes(self) -> Outside {
        let inactive_bytes = self.backing.resting_bytes();
        Outside { inactive_limit_bytes: self.cache_limit_bytes(), inactive_bytes }
    }

    /// The current levels, and the peaks brought up to date.
    pub(super) fn levels(self) -> (Snapshot, Snapshot) {
        self.with_peaks(|peaks| (self.add_up(peaks, Turn::Alone), peaks.levels()))
    }

    /// Works on the peaks. What other threads want of them meanwhile is left to this one.
    pub(super) fn with_peaks<R>(self, work: impl FnOnce(&mut Peaks) -> R) -> R {
        let result = work(&mut self.peaks.lock());
        if self.peaks.is_wanted() {
            self.settle();
        }
        result
    }

    /// Updates peaks and watermarks.
    #[cold]
    pub(super) fn refresh_peaks(self) {
        self.with_peaks(|peaks| self.add_up(peaks, Turn::Alone));
    }

    /// Updates peaks and watermarks; returns the sums over the lanes and what is outside of them.
    pub(super) fn add_up(self, peaks: &mut Peaks, turn: Turn) -> Snapshot {
        let sums = peaks.refresh(self.counters(), self.outside_of_lanes(), turn);
        self.live_peak_bytes.fetch_max(sums.all.allocated, Relaxed);
        sums
    }

    /// The most live bytes that there have been, as it will be once `more_bytes` are handed out; or
    /// the most of the run whose plan was made ready.
    /// Unlike the peak of the statistics it cannot be reset.
    pub(super) fn most_live_bytes(self, more_bytes: u64) -> u64 {
        let live_bytes: u64 = self.counters().map(LaneCounters::allocated_bytes).sum();
        self.known_peak_bytes().max(live_bytes + more_bytes)
    }

    /// [`Self::most_live_bytes`] when sums were made, for which watermarks ask whenever it rises.
    pub(super) fn known_peak_bytes(self) -> u64 {
        self.live_peak_bytes.load(Relaxed).max(self.expected_peak_bytes.load(Relaxed))
    }

    /// All bytes ever freed.
    pub(super) fn freed_bytes(self) -> u64 {
        self.totals(&SizeClass::ALL).freed
    }

    /// The totals of the blocks of `classes`.
    pub(super) fn totals(self, classes: &[SizeClass]) -> Totals {
        let of_lane = |counters: &LaneCounters| -> Totals {
            classes.iter().map(|class| counters.totals(*class)).sum()
        };
        self.counters().map(of_lane).sum()
    }
}

/// Wraps `driver` with guard pages; `None` if it does not support them.
fn guarded(driver: &Arc<dyn Device>, messages: &mut Messages) -> Option<Arc<dyn Device>> {
    let ordinal = driver.ordinal();
    match Guarded::new(Arc::clone(driver)) {
        Ok(guarded) => {
            let message = "guard pages: every block is the driver's own, as with Naive";
            messages.push((LogLevel::Info, format!("device {ordinal}: {message}")));
            Some(Arc::new(guarded))
        }
        Err(error) => {
            let message = format!("device {ordinal}: no guard pages: {error}");
            messages.push((LogLevel::Warn, message));
            None
        }
    }
}

/// The most that may be held by what is set outside of the program, in bytes; `u64::MAX`: nothing is.
fn outer_limit_bytes(driver: &dyn Device, settings: &Settings, messages: &mut Messages) -> u64 {
    let ordinal = driver.ordinal();
    let set_bytes = settings.device_limits.of(ordinal).unwrap_or(u64::MAX);
    let pci_bus_id = driver.identity().map(|identity| identity.pci_bus_id);
    let kernel_bytes = pci_bus_id.and_then(|id| dmem_limit_bytes(&id)).unwrap_or(u64::MAX);
    let bytes = set_bytes.min(kernel_bytes);
    if bytes < u64::MAX {
        let whose = if bytes == set_bytes { "GENESIS_DEVICE_LIMITS" } else { "dmem.max" };
        let message = format!("device {ordinal}: {} by {whose}", Bytes(bytes));
        messages.push((LogLevel::Info, message));
    }
    bytes
}
