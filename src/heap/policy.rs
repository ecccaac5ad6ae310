//! When cached memory goes back by itself: settings that may change while threads allocate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::release::Choice;
use crate::config::{PoolType, Settings};

/// Bits of a NaN: no value.
const NONE_BITS: u64 = u64::MAX;

/// When cached memory is released by itself.
#[derive(Debug)]
pub(super) struct Policy {
    reserve_fraction: f64,
    gc_threshold: AtomicU64,
    age_allocations: AtomicU64,
    age_seconds: AtomicU64,
    aging: AtomicBool,
    timing: AtomicBool,
}

impl Policy {
    pub(super) fn new(settings: &Settings) -> Self {
        let is_mxnet = matches!(settings.pool_type, PoolType::Round | PoolType::Exact);
        let policy = Self {
            reserve_fraction: if is_mxnet { settings.pool_reserve_percent / 100.0 } else { 0.0 },
            gc_threshold: AtomicU64::new(NONE_BITS),
            age_allocations: AtomicU64::new(NONE_BITS),
            age_seconds: AtomicU64::new(NONE_BITS),
            aging: AtomicBool::new(false),
            timing: AtomicBool::new(false),
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
        self.timing.store(timing, Relaxed);
        self.aging.store(timing || settings.gc_age_allocations.is_some(), Relaxed);
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

    /// Whether cached segments are released by age at all.
    #[inline]
    pub(super) fn is_aging(&self) -> bool {
        self.aging.load(Relaxed)
    }

    /// Whether blocks must note the time they are freed.
    #[inline]
    pub(super) fn is_timing(&self) -> bool {
        self.timing.load(Relaxed)
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
