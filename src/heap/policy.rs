//! Settings that may change while threads allocate: when cached memory is released automatically,
//! which slow-path flags operations test, and how streams are told apart.

use super::choice::Choice;
use crate::base::host_memory;
use crate::base::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::config::{PoolType, Settings, StreamIds};

/// Bits of a NaN: no value.
const NONE_BITS: u64 = u64::MAX;
/// Slow-path flags tested by every operation. This one: cached segments age.
pub(super) const AGING: u8 = 1;
/// Slow-path flag: they age by the clock.
pub(super) const TIMING: u8 = 2;
/// Slow-path flag: debugging is on.
pub(super) const DEBUGGING: u8 = 4;
/// Slow-path flag: the stream of events has a listener.
pub(super) const LISTENING: u8 = 8;
/// Slow-path flag: there may be blocks with a tag.
pub(super) const TAGGED: u8 = 16;
/// Slow-path flag: a block was shared with another process.
pub(super) const SHARING: u8 = 32;
/// Slow-path flag: the host's own memory was short.
pub(super) const HOST_SHORT: u8 = 64;

/// Which streams are told apart by the driver's numbers: none, …
const NO_STREAMS: u8 = 0;
/// … those of callers that may destroy them, or …
const DESTROYABLE_STREAMS: u8 = 1;
/// … all.
const ALL_STREAMS: u8 = 2;
/// None, because the program says that they last, or that it announces their end.
const NO_STREAMS_AS_ASKED: u8 = 3;

/// When cached memory is released automatically, and the slow-path flags.
#[derive(Debug)]
pub(super) struct Policy {
    reserve_fraction: f64,
    gc_threshold: AtomicU64,
    compact_above: AtomicU64,
    age_allocations: AtomicU64,
    age_seconds: AtomicU64,
    /// The slow-path flags that are set, except `LISTENING`.
    heeded: AtomicU8,
    identified: AtomicU8,
    /// Whether the driver has numbers for streams; true until a call shows that it has none.
    has_numbers: AtomicBool,
}

impl Policy {
    pub(super) fn new(settings: &Settings) -> Self {
        let is_mxnet = matches!(settings.strategy.pool_type, PoolType::Round | PoolType::Exact);
        let policy = Self {
            reserve_fraction: if is_mxnet {
                settings.strategy.reserve_percent / 100.0
            } else {
                0.0
            },
            gc_threshold: AtomicU64::new(NONE_BITS),
            compact_above: AtomicU64::new(NONE_BITS),
            age_allocations: AtomicU64::new(NONE_BITS),
            age_seconds: AtomicU64::new(NONE_BITS),
            heeded: AtomicU8::new(0),
            identified: AtomicU8::new(NO_STREAMS),
            has_numbers: AtomicBool::new(true),
        };
        policy.set(settings);
        policy
    }

    /// Applies `settings`.
    pub(super) fn set(&self, settings: &Settings) {
        let bits = |value: Option<f64>| value.map_or(NONE_BITS, f64::to_bits);
        self.gc_threshold.store(bits(settings.gc_threshold), Relaxed);
        self.compact_above.store(bits(settings.compact_above), Relaxed);
        self.age_allocations.store(settings.gc_age_allocations.unwrap_or(NONE_BITS), Relaxed);
        self.age_seconds.store(bits(settings.gc_age_seconds), Relaxed);
        let timing = settings.gc_age_seconds.is_some();
        let aging = timing || settings.gc_age_allocations.is_some();
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let heeded = bit(aging, AGING) | bit(timing, TIMING);
        let heeded = heeded | bit(settings.debug.is_any(), DEBUGGING);
        let keep_seen = |before: u8| Some(heeded | before & (TAGGED | SHARING | HOST_SHORT));
        let _ = self.heeded.fetch_update(Relaxed, Relaxed, keep_seen);
        let identified = match settings.stream_ids {
            StreamIds::Off => NO_STREAMS_AS_ASKED,
            _ if !self.has_numbers.load(Relaxed) => NO_STREAMS,
            StreamIds::Auto => DESTROYABLE_STREAMS,
            StreamIds::On => ALL_STREAMS,
        };
        self.identified.store(identified, Relaxed);
    }

    /// From now on there may be blocks with a tag.
    pub(super) fn heed_tags(&self) {
        self.heeded.fetch_or(TAGGED, Relaxed);
    }

    /// Returns true if streams that may be destroyed are told apart by the driver's numbers.
    #[inline]
    pub(super) fn identifies_streams(&self) -> bool {
        !matches!(self.identified.load(Relaxed), NO_STREAMS | NO_STREAMS_AS_ASKED)
    }

    /// Returns true if all streams are told apart by the driver's numbers.
    #[inline]
    pub(super) fn identifies_all_streams(&self) -> bool {
        self.identified.load(Relaxed) == ALL_STREAMS
    }

    /// Returns true if the program says that its streams last, or that it announces their end.
    pub(super) fn trusts_streams(&self) -> bool {
        self.identified.load(Relaxed) == NO_STREAMS_AS_ASKED
    }

    /// Called when the driver turns out to have no such numbers.
    pub(super) fn never_identify_streams(&self) {
        self.has_numbers.store(false, Relaxed);
        self.identified.store(NO_STREAMS, Relaxed);
    }

    /// The part of a device's memory that stays free of cached segments.
    pub(super) fn reserve_fraction(&self) -> f64 {
        self.reserve_fraction
    }

    /// The part of the usable memory above which old segments are released before new ones
    /// are made.
    pub(super) fn gc_threshold(&self) -> Option<f64> {
        some_f64(self.gc_threshold.load(Relaxed))
    }

    /// The part of what is held above which free memory is returned after a miss.
    #[inline]
    pub(super) fn compact_above(&self) -> Option<f64> {
        some_f64(self.compact_above.load(Relaxed))
    }

    /// The slow-path flags that are set, except `LISTENING`.
    #[inline]
    pub(super) fn heeded(&self) -> u8 {
        self.heeded.load(Relaxed)
    }

    /// From now on operations look for blocks that are shared.
    pub(super) fn heed_sharing(&self) {
        self.heeded.fetch_or(SHARING, SeqCst);
    }

    /// From now on operations look at what is left of the host's own memory.
    pub(super) fn heed_host_memory(&self) {
        self.heeded.fetch_or(HOST_SHORT, SeqCst);
    }

    /// Ends that if the host's own memory is not short any more.
    pub(super) fn ignore_host_memory(&self) {
        self.heeded.fetch_and(!HOST_SHORT, SeqCst);
        // It may have become short meanwhile.
        if host_memory::is_short() {
            self.heed_host_memory();
        }
    }

    /// Returns true if debugging is on, so that call sites and times of blocks are noted, or more.
    pub(super) fn is_debugging(&self) -> bool {
        self.heeded.load(Relaxed) & DEBUGGING != 0
    }

    /// Returns true if blocks must note the time they are freed.
    pub(super) fn is_timing(&self) -> bool {
        self.heeded.load(Relaxed) & TIMING != 0
    }

    /// Chooses the segments that have reached one of the ages set.
    pub(super) fn unused(&self) -> Choice {
        let allocations = self.age_allocations.load(Relaxed);
        Choice::Unused {
            allocations: (allocations != NONE_BITS).then_some(allocations),
            seconds: some_f64(self.age_seconds.load(Relaxed)),
        }
    }
}

fn some_f64(bits: u64) -> Option<f64> {
    (bits != NONE_BITS).then(|| f64::from_bits(bits))
}
