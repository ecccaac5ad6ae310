//! Exact statistics at the price of plain additions.
//!
//! Each lane counts for itself. Its counters are written only under the lane's lock and with
//! plain loads and stores (no locked instruction), and may be read by anybody at any time;
//! a device's statistics are sums over its lanes.
//!
//! **Peaks** are of sums, and the peak of a sum is not the sum of peaks. Sharing a counter
//! would cost a contended cache line per operation, so the room below each peak is handed out
//! to the lanes in equal shares, as *watermarks*: while every lane stays within its own, the
//! sum stays below the peak and nobody needs to look. A lane that crosses one makes the sums
//! afresh ([`Peaks::refresh`]), which raises the peak if it must be and hands out new shares.
//! With operations one after another the peaks are exact; operations at the same moment on
//! different lanes count in one order or the other. (Distributed threshold counting: Cormode,
//! Muthukrishnan, Yi, "Algorithms for Distributed Functional Monitoring", 2008.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one lane counts. Bytes, except for the counts.
#[derive(Debug, Default)]
pub struct LaneCounters {
    requested_total: AtomicU64,
    requested_freed: AtomicU64,
    allocated_total: AtomicU64,
    allocated_freed: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
    misses: AtomicU64,
    pending_bytes: AtomicU64,
    segments_bytes: AtomicU64,
    /// The most `requested` bytes before the sums must be made.
    requested_ceiling: AtomicU64,
    /// The most `allocated` bytes before the sums must be made.
    allocated_ceiling: AtomicU64,
    /// The fewest `allocated` bytes, i.e. the most inactive ones, before the sums must be made.
    allocated_floor: AtomicU64,
}

/// Whether a lane has crossed one of its watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Watermark {
    /// The device's sums are within their peaks.
    Within,
    /// [`Peaks::refresh`] must be called, once the lane's lock is released.
    Crossed,
}

/// Bytes of several kinds at one moment, of a lane or of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// As asked for by the caller, live.
    pub requested: u64,
    /// Of live blocks.
    pub allocated: u64,
    /// Of live blocks and of freed ones that other streams may still use.
    pub active: u64,
    /// Reserved and not active: cached.
    pub inactive: u64,
}

/// Sums of a lane's or a device's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of blocks handed out.
    pub allocated: u64,
    /// Bytes of blocks freed.
    pub freed: u64,
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations not served from the lane's own free blocks.
    pub misses: u64,
}

impl LaneCounters {
    /// All zero; the first operation makes the sums.
    pub fn new() -> Self {
        Self::default()
    }

    /// A block of `allocated` bytes was handed out for `requested` ones. Lane lock held.
    #[inline]
    pub fn on_allocate(&self, requested: u64, allocated: u64) -> Watermark {
        add(&self.allocations, 1);
        let requested = add(&self.requested_total, requested) - self.requested_freed.load(Relaxed);
        let allocated = add(&self.allocated_total, allocated) - self.allocated_freed.load(Relaxed);
        let crossed = requested > self.requested_ceiling.load(Relaxed)
            || allocated > self.allocated_ceiling.load(Relaxed);
        if crossed { Watermark::Crossed } else { Watermark::Within }
    }

    /// A block was freed and is free at once. Lane lock held.
    #[inline]
    pub fn on_free(&self, requested: u64, allocated: u64) -> Watermark {
        add(&self.frees, 1);
        add(&self.requested_freed, requested);
        let freed = add(&self.allocated_freed, allocated);
        let allocated = self.allocated_total.load(Relaxed) - freed;
        let crossed = allocated < self.allocated_floor.load(Relaxed);
        if crossed { Watermark::Crossed } else { Watermark::Within }
    }

    /// A block just freed waits for other streams; the watermarks must be set anew.
    pub fn on_pending(&self, allocated: u64) {
        add(&self.pending_bytes, allocated);
    }

    /// A pending block has become free; the watermarks must be set anew.
    pub fn on_ready(&self, allocated: u64) {
        let pending = self.pending_bytes.load(Relaxed);
        self.pending_bytes.store(pending - allocated, Relaxed);
    }

    /// An allocation just counted was not served from the lane's own free blocks. Lane lock held.
    pub fn on_miss(&self) {
        add(&self.misses, 1);
    }

    /// The lane's segments are `bytes` together now; the watermarks must be set anew.
    pub fn set_segments_bytes(&self, bytes: u64) {
        self.segments_bytes.store(bytes, Relaxed);
    }

    /// The lane's free bytes, about: exact while nothing happens.
    pub fn inactive_bytes(&self) -> u64 {
        self.levels().inactive
    }

    /// The lane's bytes by kind.
    pub fn levels(&self) -> Levels {
        let requested_freed = self.requested_freed.load(Relaxed);
        let allocated_freed = self.allocated_freed.load(Relaxed);
        // A reader without the lock may see a free before its allocation: hence saturating.
        let allocated = self.allocated_total.load(Relaxed).saturating_sub(allocated_freed);
        let active = allocated + self.pending_bytes.load(Relaxed);
        Levels {
            requested: self.requested_total.load(Relaxed).saturating_sub(requested_freed),
            allocated,
            active,
            inactive: self.segments_bytes.load(Relaxed).saturating_sub(active),
        }
    }

    /// The lane's sums since the start.
    pub fn totals(&self) -> Totals {
        Totals {
            requested: self.requested_total.load(Relaxed),
            allocated: self.allocated_total.load(Relaxed),
            freed: self.allocated_freed.load(Relaxed),
            allocations: self.allocations.load(Relaxed),
            frees: self.frees.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }

    /// Hands the lane its share of the room below the device's peaks.
    fn set_watermarks(&self, room: Levels) {
        let levels = self.levels();
        let requested_ceiling = levels.requested.saturating_add(room.requested);
        let allocated_room = room.allocated.min(room.active);
        set(&self.requested_ceiling, requested_ceiling);
        set(&self.allocated_ceiling, levels.allocated.saturating_add(allocated_room));
        set(&self.allocated_floor, levels.allocated.saturating_sub(room.inactive));
    }
}

impl Levels {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requested: f(self.requested, other.requested),
            allocated: f(self.allocated, other.allocated),
            active: f(self.active, other.active),
            inactive: f(self.inactive, other.inactive),
        }
    }
}

impl std::iter::Sum for Levels {
    fn sum<I: Iterator<Item = Self>>(levels: I) -> Self {
        levels.fold(Self::default(), |sum, lane| sum.zip(lane, u64::saturating_add))
    }
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(totals: I) -> Self {
        totals.fold(Self::default(), |sum, lane| Self {
            requested: sum.requested.wrapping_add(lane.requested),
            allocated: sum.allocated.wrapping_add(lane.allocated),
            freed: sum.freed.wrapping_add(lane.freed),
            allocations: sum.allocations + lane.allocations,
            frees: sum.frees + lane.frees,
            misses: sum.misses + lane.misses,
        })
    }
}

/// The peaks of one device. Kept under a lock of the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    levels: Levels,
}

impl Peaks {
    /// The highest sums so far.
    pub fn levels(&self) -> Levels {
        self.levels
    }

    /// Raises the peaks to the sums over `lanes`, hands out watermarks, and gives the sums.
    ///
    /// No lane's inactive bytes will pass its share of `inactive_limit` unnoticed.
    pub fn refresh<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a LaneCounters> + Clone,
        inactive_limit: u64,
    ) -> Levels {
        let sums: Levels = lanes.clone().map(LaneCounters::levels).sum();
        self.levels = self.levels.zip(sums, u64::max);
        let shares = lanes.clone().count().max(1) as u64;
        let mut bounds = self.levels;
        bounds.inactive = bounds.inactive.min(inactive_limit);
        let room = bounds.zip(sums, |bound, sum| bound.saturating_sub(sum) / shares);
        for lane in lanes {
            lane.set_watermarks(room);
        }
        sums
    }

    /// Makes the peaks the sums over `lanes`.
    pub fn reset<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a LaneCounters> + Clone,
        inactive_limit: u64,
    ) {
        self.levels = Levels::default();
        self.refresh(lanes, inactive_limit);
    }
}

/// Writes only what differs: the lane's own thread has the cache line.
fn set(watermark: &AtomicU64, bytes: u64) {
    if watermark.load(Relaxed) != bytes {
        watermark.store(bytes, Relaxed);
    }
}

/// Adds to a counter that only the caller may write; gives the sum.
#[inline]
fn add(counter: &AtomicU64, n: u64) -> u64 {
    let sum = counter.load(Relaxed).wrapping_add(n);
    counter.store(sum, Relaxed);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lanes in turn, against peaks computed after each operation from the plain sums.
    #[test]
    fn peaks_of_sums_are_exact() {
        let lanes = [LaneCounters::new(), LaneCounters::new(), LaneCounters::new()];
        let mut peaks = Peaks::default();
        let mut live: [Vec<u64>; 3] = Default::default();
        let mut expected = Levels::default();
        let mut refreshes = 0;
        let mut random = 12345u64;
        for lane in &lanes {
            lane.set_segments_bytes(1 << 20);
        }
        peaks.refresh(lanes.iter(), u64::MAX);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let which = (random >> 33) as usize % 3;
            let watermark = if (random >> 40) % 100 < 52 && live[which].len() < 500 {
                let bytes = (random >> 50) % 1000 + 1;
                live[which].push(bytes);
                lanes[which].on_allocate(bytes, bytes * 2)
            } else if let Some(bytes) = live[which].pop() {
                lanes[which].on_free(bytes, bytes * 2)
            } else {
                continue;
            };
            let sums: Levels = lanes.iter().map(LaneCounters::levels).sum();
            expected = expected.zip(sums, u64::max);
            if watermark == Watermark::Crossed {
                peaks.refresh(lanes.iter(), u64::MAX);
                refreshes += 1;
            }
            assert_eq!(peaks.levels().requested, expected.requested);
            assert_eq!(peaks.levels().allocated, expected.allocated);
            assert_eq!(peaks.levels().active, expected.active);
        }
        assert!(refreshes < 10_000, "{refreshes} refreshes: the watermarks save nothing");
        peaks.reset(lanes.iter(), u64::MAX);
        assert_eq!(peaks.levels(), lanes.iter().map(LaneCounters::levels).sum());
    }
}
