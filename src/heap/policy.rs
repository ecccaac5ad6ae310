//! When cached memory goes back by itself: settings that may change while threads allocate.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::release::Choice;
use crate::config::{PoolType, Settings, StreamIds};

/// Bits of a NaN: no value.
const NONE_BITS: u64 = u64::MAX;
/// What operations have to heed besides: cached segments age, …
const AGING: u8 = 1;
/// … by the clock, or …
const TIMING: u8 = 2;
/// … somebody debugs the program.
const DEBUGGING: u8 = 4;

/// Whose streams are told by the driver's numbers: nobody's, …
const NOBODYS: u8 = 0;
/// … those of callers that may destroy them, or …
const UNSTEADY: u8 = 1;
/// … everybody's.
const EVERYBODYS: u8 = 2;

/// When cached memory is released by itself, and what else operations have to heed.
#[derive(Debug)]
pub(super) struct Policy {
    reserve_fraction: f64,
    gc_threshold: AtomicU64,
    age_allocations: AtomicU64,
    age_seconds: AtomicU64,
    /// Bits of the above.
    heeded: AtomicU8,
    identified: AtomicU8,
    /// Whether the driver has numbers for streams, as far as is known.
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
            age_allocations: AtomicU64::new(NONE_BITS),
            age_seconds: AtomicU64::new(NONE_BITS),
            heeded: AtomicU8::new(0),
            identified: AtomicU8::new(NOBODYS),
            has_numbers: AtomicBool::new(true),
        };
        policy.set(settings);
        policy
    }

    /// Takes over what `settings` say.
    pub(super) fn set(&self, settings: &Settings) {
        let bits = |value: Option<f64>| value.map_or(NONE_BITS, f64::to_bits);
        self.gc_threshold.store(bits(settings.gc_threshold), Relaxed);
        self.age_allocations.store(settings.gc_age_allocations.unwrap_or(NONE_BITS), Relaxed);
        self.age_seconds.store(bits(settings.gc_age_seconds), Relaxed);
        let timing = settings.gc_age_seconds.is_some();
        let aging = timing || settings.gc_age_allocations.is_some();
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let heeded = bit(aging, AGING) | bit(timing, TIMING);
        self.heeded.store(heeded | bit(settings.debug.is_any(), DEBUGGING), Relaxed);
        let identified = match settings.stream_ids {
            _ if !self.has_numbers.load(Relaxed) => NOBODYS,
            StreamIds::Off => NOBODYS,
            StreamIds::Auto => UNSTEADY,
            StreamIds::On => EVERYBODYS,
        };
        self.identified.store(identified, Relaxed);
    }

    /// Whether the streams of a caller that may destroy them are told by the driver's numbers.
    #[inline]
    pub(super) fn identifies_streams(&self) -> bool {
        self.identified.load(Relaxed) != NOBODYS
    }

    /// Whether those of every caller are.
    #[inline]
    pub(super) fn identifies_all_streams(&self) -> bool {
        self.identified.load(Relaxed) == EVERYBODYS
    }

    /// The driver has no such numbers.
    pub(super) fn never_identify_streams(&self) {
        self.has_numbers.store(false, Relaxed);
        self.identified.store(NOBODYS, Relaxed);
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

    /// Whether allocations have more to see to: [`Self::is_aging`] or [`Self::is_debugging`].
    #[inline]
    pub(super) fn heeds_allocations(&self) -> bool {
        self.heeded.load(Relaxed) & (AGING | DEBUGGING) != 0
    }

    /// Whether frees have more to see to: [`Self::is_timing`] or [`Self::is_debugging`].
    #[inline]
    pub(super) fn heeds_frees(&self) -> bool {
        self.heeded.load(Relaxed) & (TIMING | DEBUGGING) != 0
    }

    /// Whether places and times, or more, are noted of blocks.
    pub(super) fn is_debugging(&self) -> bool {
        self.heeded.load(Relaxed) & DEBUGGING != 0
    }

    /// Whether cached segments are released by age at all.
    pub(super) fn is_aging(&self) -> bool {
        self.heeded.load(Relaxed) & AGING != 0
    }

    /// Whether blocks must note the time they are freed.
    pub(super) fn is_timing(&self) -> bool {
        self.heeded.load(Relaxed) & TIMING != 0
    }

    /// The segments that have reached an age set.
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
