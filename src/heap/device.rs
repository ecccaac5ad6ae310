//! What the lanes of one device share: the supply of segments, events, limits and peaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::captures::Captures;
use super::elastic::Slack;
use super::lane::{Lane, LaneState};
use super::lanes::{LaneIndex, Lanes};
use super::peers::Introductions;
use super::pools::Pools;
use crate::base::lock::{Lock, rank};
use crate::base::size::SizeClass;
use crate::base::{DeviceOrdinal, Result};
use crate::config::{ElasticPolicy, LogLevel, PoolType, Settings};
use crate::driver::guarded::Guarded;
use crate::driver::{Call, Device, HandleOptions};
use crate::memory::{BlockTable, Pages, Slot, Supply};
use crate::observe::{
    EventStream, LaneCounters, Peaks, PoolStatistics, Snapshot, Statistics, Tallies, Totals,
    Watermark,
};
use crate::order::Contexts;
use crate::strategy::{Sizing, SplitFree};

/// What there is to say later.
type Messages = Vec<(LogLevel, String)>;

/// One device of the heap.
#[derive(Debug)]
pub(super) struct DeviceHeap {
    pub(super) ordinal: DeviceOrdinal,
    pub(super) name: String,
    pub(super) driver: Arc<dyn Device>,
    /// The strategy in force.
    pub(super) pool_type: PoolType,
    pub(super) sizing: Sizing,
    pub(super) supply: Supply,
    /// Elastic: requests of at least this many bytes get one extent each.
    pub(super) single_handle_bytes: u64,
    /// Elastic's memory; the others have segments.
    pub(super) pages: Option<Pages>,
    /// Whether each block is one of the driver's, with a guard page behind it.
    pub(super) is_guarded: bool,
    pub(super) policy: ElasticPolicy,
    pub(super) slack: Slack,
    pub(super) contexts: Contexts,
    pub(super) lanes: LaneIndex,
    pub(super) pools: Pools,
    pub(super) captures: Arc<Captures>,
    pub(super) introductions: Introductions,
    pub(super) tallies: Tallies,
    /// Pinned host memory, by address, that is to be given back and could not be yet.
    pub(super) unpinned: Lock<Vec<u64>, { rank::DEVICE }>,
    limits: Lock<Limits, { rank::DEVICE }>,
    /// The most bytes to keep cached; `u64::MAX`: no limit.
    cache_limit_bytes: AtomicU64,
    peaks: Lock<Peaks, { rank::DEVICE }>,
}

/// What the user allows, from which the supply's one number follows.
#[derive(Clone, Copy, Debug)]
struct Limits {
    fraction: f64,
    bytes: Option<u64>,
}

impl DeviceHeap {
    /// Makes the device ready; the first call to its driver happens here. What there is to say
    /// goes to `messages`: others wait for the device meanwhile, so nobody else's code may run.
    pub(super) fn open(
        driver: Arc<dyn Device>,
        captures: Arc<Captures>,
        settings: &Settings,
        messages: &mut Messages,
        observer: &'static EventStream,
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
        let pages = match settings.strategy.pool_type {
            PoolType::Elastic => {
                Pages::open(Arc::clone(&driver), HandleOptions::wished(&settings), events)?
            }
            _ => None,
        };
        if settings.strategy.pool_type == PoolType::Elastic && pages.is_none() {
            let message = "has no virtual memory management: Caching instead of Elastic";
            messages.push((LogLevel::Warn, format!("device {ordinal} {message}")));
            settings.strategy.pool_type = PoolType::Caching;
        }
        let device = Self {
            ordinal,
            name: driver.name(),
            pool_type: settings.strategy.pool_type,
            sizing: Sizing::new(&settings),
            supply: Supply::new(Arc::clone(&driver), events)?,
            single_handle_bytes: match &pages {
                Some(_) => settings.single_handle_size_bytes.unwrap_or(u64::MAX),
                None => u64::MAX,
            },
            pages,
            is_guarded,
            policy: settings.elastic_policy,
            slack: Slack::new(settings.elastic_policy),
            contexts: Contexts::new(Arc::clone(&driver)),
            lanes: LaneIndex::new(ordinal),
            pools: Pools::default(),
            captures,
            introductions: Introductions::default(),
            tallies: Tallies::default(),
            unpinned: Lock::default(),
            limits: Lock::new(Limits { fraction: 1.0, bytes: None }),
            cache_limit_bytes: AtomicU64::new(settings.cache_size_bytes.unwrap_or(u64::MAX)),
            peaks: Lock::new(Peaks::default()),
            driver,
        };
        device.set_memory_fraction(settings.memory_fraction);
        device.set_memory_limit(settings.memory_limit_bytes);
        Ok(device)
    }

    /// The physical memory under the backed blocks of a lane.
    pub(super) fn footprint_bytes(&self, blocks: &BlockTable) -> u64 {
        if !self.is_guarded {
            return blocks.backed_bytes();
        }
        let backed = blocks.iter().filter(|(_, block)| block.state.is_backed());
        backed.map(|(_, block)| self.driver.footprint_bytes(block.bytes)).sum()
    }

    /// Sees to what `lane` has to do before an allocation; nothing while a stream may be capturing.
    /// Says whether the watermarks must be set anew.
    #[inline]
    pub(super) fn prepare(&self, lane: &Lane, state: &mut LaneState) -> Watermark {
        match self.pools.is_routing() {
            false => lane.prepare(state, &self.contexts),
            true => Watermark::Within,
        }
    }

    /// What the lane finds for a request that it has just missed, once blocks are free again
    /// whose events have completed meanwhile. Where it has none, the request climbs.
    #[cold]
    pub(super) fn take_pending(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        block_bytes: u64,
        prepared: &mut Watermark,
    ) -> Option<Slot> {
        if !state.pending.has_events() || self.pools.is_routing() {
            return None;
        }
        let polled = lane.poll(state, self.contexts.own());
        if polled == Watermark::Crossed {
            *prepared = polled;
        }
        state.strategy.take(&mut state.blocks, block_bytes)
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
        // A fraction of 1 leaves it to the driver, which knows what other processes hold.
        let fraction_bytes = if limits.fraction < 1.0 {
            (self.supply.total_bytes() as f64 * limits.fraction) as u64
        } else {
            u64::MAX
        };
        self.supply.set_allowed_bytes(limits.bytes.unwrap_or(u64::MAX).min(fraction_bytes));
    }

    /// The most bytes the device could reserve: the limit, or all of its memory.
    pub(super) fn usable_bytes(&self) -> u64 {
        self.supply.allowed_bytes().min(self.supply.total_bytes())
    }

    pub(super) fn cache_limit_bytes(&self) -> u64 {
        self.cache_limit_bytes.load(Relaxed)
    }

    pub(super) fn set_cache_limit_bytes(&self, bytes: u64) {
        self.cache_limit_bytes.store(bytes, Relaxed);
    }

    fn counters<'a>(&self, lanes: &'a Lanes) -> impl Iterator<Item = &'a LaneCounters> + Clone {
        lanes.of(self.ordinal).map(|lane| &lane.counters)
    }

    /// Brings peaks and watermarks up to date; says by how many bytes the cache is over its
    /// limit.
    #[cold]
    pub(super) fn refresh_peaks(&self, lanes: &Lanes) -> u64 {
        let cache_limit = self.cache_limit_bytes();
        let levels = self.peaks.lock().refresh(self.counters(lanes), cache_limit);
        levels.inactive.saturating_sub(cache_limit)
    }

    /// Makes every peak what is there now.
    pub(super) fn reset_peaks(&self, lanes: &Lanes) {
        for lane in lanes.of(self.ordinal) {
            lane.lock().strategy.reset_peaks();
        }
        self.supply.reset_peak();
        self.peaks.lock().reset(self.counters(lanes), self.cache_limit_bytes());
    }

    /// The most bytes that were active at a time, or will be once `more_bytes` are handed out.
    pub(super) fn peak_active_bytes(&self, lanes: &Lanes, more_bytes: u64) -> u64 {
        let (now, peaks) = self.levels(lanes);
        peaks.all.active.max(now.all.active + more_bytes)
    }

    /// The most bytes that were live at a time, or will be once `more_bytes` are handed out.
    pub(super) fn peak_live_bytes(&self, lanes: &Lanes, more_bytes: u64) -> u64 {
        let (now, peaks) = self.levels(lanes);
        peaks.all.allocated.max(now.all.allocated + more_bytes)
    }

    /// All bytes ever freed.
    pub(super) fn freed_bytes(&self, lanes: &Lanes) -> u64 {
        self.totals(lanes, &SizeClass::ALL).freed
    }

    /// The levels now, with peaks that are up to date.
    fn levels(&self, lanes: &Lanes) -> (Snapshot, Snapshot) {
        let mut peaks = self.peaks.lock();
        let now = peaks.refresh(self.counters(lanes), self.cache_limit_bytes());
        (now, peaks.levels())
    }

    fn totals(&self, lanes: &Lanes, classes: &[SizeClass]) -> Totals {
        let of_lane = |counters: &LaneCounters| -> Totals {
            classes.iter().map(|class| counters.totals(*class)).sum()
        };
        self.counters(lanes).map(of_lane).sum()
    }

    /// The device's statistics, but for the largest free block.
    pub(super) fn statistics(&self, lanes: &Lanes) -> Statistics {
        let (now, peaks) = self.levels(lanes);
        let usage = self.driver.usage();
        let memory_calls =
            [Call::Allocate, Call::Free, Call::Create, Call::Release, Call::Map, Call::Unmap]
                .into_iter()
                .chain([Call::Reserve, Call::Unreserve, Call::SetAccess]);
        let mut statistics = Statistics {
            reserved_bytes: self.supply.reserved(None),
            driver_calls: usage.total_calls(),
            driver_memory_calls: memory_calls.map(|call| usage.calls[call as usize]).sum(),
            driver_nanoseconds: usage.nanoseconds,
            retries: self.tallies.retries.load(Relaxed),
            out_of_memory_events: self.tallies.out_of_memory_events.load(Relaxed),
            cross_stream_reuses: self.tallies.cross_stream_reuses.load(Relaxed),
            ..Statistics::default()
        };
        let totals = self.totals(lanes, &SizeClass::ALL);
        let misses = self.counters(lanes).map(LaneCounters::misses).sum();
        statistics.set_levels(&now, &peaks, totals, misses);
        statistics
    }

    /// The statistics of the blocks of `class`, or of all.
    pub(super) fn pool_statistics(
        &self,
        lanes: &Lanes,
        class: Option<SizeClass>,
    ) -> PoolStatistics {
        let (now, peaks) = self.levels(lanes);
        let classes = class.as_ref().map_or(&SizeClass::ALL[..], std::slice::from_ref);
        let totals = self.totals(lanes, classes);
        let mut statistics = match class {
            Some(class) => {
                let index = class.index();
                PoolStatistics::new(&now.classes[index], &peaks.classes[index], totals)
            }
            None => PoolStatistics::new(&now.all, &peaks.all, totals),
        };
        statistics.segment = self.supply.segments(class);
        statistics.reserved_bytes = self.supply.reserved(class);
        for lane in lanes.of(self.ordinal) {
            let state = lane.lock();
            for class in classes {
                let SplitFree { blocks, bytes } = state.strategy.split(*class);
                statistics.inactive_split = statistics.inactive_split.plus(blocks);
                statistics.inactive_split_bytes = statistics.inactive_split_bytes.plus(bytes);
            }
        }
        statistics
    }
}

/// `driver` with guard pages, if it can have them.
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
