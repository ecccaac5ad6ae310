//! Exact statistics at the price of plain additions.
//!
//! Each lane has its own counters. They are written only under the lane's lock, with plain loads
//! and stores (no locked instruction), and any thread may read them at any time. A device's
//! statistics are sums over its lanes.
//!
//! **Peaks** are peaks of sums, and the peak of a sum is not the sum of peaks. A shared counter
//! would cost a contended cache line per operation. So the lanes that have memory get equal shares of
//! the room below each peak, as *watermarks*: while every lane stays within its own, the sum stays
//! below the peak ([`watermarks`](super::watermarks) has how an allocation knows that at little cost).
//! A lane that crosses one makes the sums again ([`Peaks::refresh`]), which raises the peak if
//! necessary and gives every lane a new share, and this lane what the division leaves. Peaks are exact
//! for operations one after another; simultaneous operations on different lanes count in some order, and
//! one that is undone before another thread's refresh has ended may not count.
//!
//! **A refresh** writes the watermarks of other lanes without their locks:
//!
//! - An allocation or a free at that moment may be missing from the sums, and still be within its
//!   lane's old watermarks. The refresh finds it beyond the new ones when it looks again, and then
//!   begins anew. (It is missed if its counts reach the refreshing processor later than its look
//!   at the old watermarks was: a locked instruction in each call would be needed against that.)
//! - A block that becomes pending or ready moves the floor, and this move and the refresh may overwrite
//!   each other. Then the floor is wrong by the bytes of blocks that became pending or ready during the
//!   refresh, until the lane's next refresh or next such block. So the peak of inactive bytes may miss
//!   these for each such lane.
//!
//! **Threads do not wait for each other's refreshes** ([`Combined`](super::combined::Combined)): the one
//! at it begins again for those that came meanwhile. When it does, it sets no floors for the peak of
//! inactive bytes, which then rises only in a refresh, until a refresh to which no thread came sets
//! them again. Without this, eight threads of recorded programs on 16 processors spent most of their
//! time at the lock of the peaks, because of floors above all.
//!
//! Memory limits do not depend on this: the supply keeps them exactly. Exact peaks would need every
//! lane's lock in a refresh or a locked instruction in each free. (Distributed threshold counting:
//! Cormode, Muthukrishnan, Yi, "Algorithms for Distributed Functional Monitoring", 2008.)

use super::combined::Turn;
use super::levels::{Levels, Snapshot, Totals};
use super::watermarks::{Allowance, Ceilings, Floor, Live, Pending, Share, set};
use crate::base::size::SizeClass;
use crate::base::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::base::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The class that has not used up its share gets this part of the room that both have.
const OTHER_PART: u64 = 8;

/// A refresh begins anew so often at most: once for each thread that passes a watermark meanwhile,
/// which then waits for the lock of the peaks.
const MOST_ROUNDS: u32 = 16;

/// The counters of one lane. Cache lines, of 64 bytes each: one for each class that the lane's calls write;
/// one that they compare with; what few calls use; and the ceilings, which refreshes write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneCounters {
    classes: [ClassCounters; 2],
    allowances: [Allowance; 2],
    /// How often the ceilings were set, modulo 2^32; only refreshes write it.
    settings: AtomicU32,
    /// … when the shares were set, which are good until it changes.
    shared_at: AtomicU32,
    floor: Floor,
    shares: [Share; 2],
    misses: AtomicU64,
    held_bytes: AtomicU64,
    /// The most live bytes that a refresh has seen.
    most_allocated: AtomicU64,
    class_ceilings: [Ceilings; 2],
    /// For both classes together.
    ceilings: Ceilings,
}

/// The counters of one lane for the blocks of one size class: bytes, or numbers of blocks.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct ClassCounters {
    requested_total: AtomicU64,
    requested_freed: AtomicU64,
    allocated_total: AtomicU64,
    allocated_freed: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
    pending_bytes: AtomicU64,
    pending_blocks: AtomicU64,
}

/// Tells if a lane has crossed one of its watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Watermark {
    /// The device's sums are within their peaks.
    Within,
    /// [`Peaks::refresh`] must be called after the lane's lock is released.
    Crossed,
}

impl ClassCounters {
    /// Lane lock held, so no other thread changes the counters.
    #[inline]
    fn live_bytes(&self) -> u64 {
        self.allocated_total.load(Relaxed).wrapping_sub(self.allocated_freed.load(Relaxed))
    }

    fn pending(&self) -> Pending {
        let bytes = self.pending_bytes.load(Relaxed);
        Pending { bytes, blocks: self.pending_blocks.load(Relaxed) }
    }

    fn levels(&self) -> Levels {
        // Saturating, because a reader without the lock may see a free before its allocation.
        let difference = |total: &AtomicU64, gone: u64| total.load(Relaxed).saturating_sub(gone);
        let requested_freed = self.requested_freed.load(Relaxed);
        let allocated_freed = self.allocated_freed.load(Relaxed);
        let frees = self.frees.load(Relaxed);
        let allocated = difference(&self.allocated_total, allocated_freed);
        let blocks = difference(&self.allocations, frees);
        let pending = self.pending();
        Levels {
            requested: difference(&self.requested_total, requested_freed),
            allocated,
            active: allocated + pending.bytes,
            blocks,
            active_blocks: blocks + pending.blocks,
        }
    }

    fn totals(&self) -> Totals {
        Totals {
            requested: self.requested_total.load(Relaxed),
            allocated: self.allocated_total.load(Relaxed),
            freed: self.allocated_freed.load(Relaxed),
            allocations: self.allocations.load(Relaxed),
            frees: self.frees.load(Relaxed),
        }
    }
}

impl LaneCounters {
    /// All zero; the first operation makes the sums.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a block of `allocated` bytes for a request of `requested` bytes. Lane lock held.
    #[inline]
    pub fn on_allocate(&self, class: SizeClass, requested: u64, allocated: u64) -> Watermark {
        debug_assert!(requested <= allocated);
        let counters = &self.classes[class.index()];
        let live = |total: u64, gone: &AtomicU64| total.wrapping_sub(gone.load(Relaxed));
        let live = Live {
            requested: live(add(&counters.requested_total, requested), &counters.requested_freed),
            allocated: live(add(&counters.allocated_total, allocated), &counters.allocated_freed),
            blocks: live(add(&counters.allocations, 1), &counters.frees),
        };
        let is_shared = self.settings.load(Relaxed) == self.shared_at.load(Relaxed);
        if is_shared && self.allowances[class.index()].covers(live) {
            Watermark::Within
        } else {
            self.share_room(class)
        }
    }

    /// Compares the levels with their ceilings, and shares out the room between the classes; `class` has
    /// used up its share.
    #[cold]
    fn share_room(&self, class: SizeClass) -> Watermark {
        // Before the ceilings: if they are set meanwhile, the shares are of an earlier setting.
        let settings = self.settings.load(Acquire);
        let levels = self.levels();
        let of_both = self.ceilings.room_above(levels[0].zip(levels[1], u64::saturating_add));
        let [small, large] =
            [0, 1].map(|class| self.class_ceilings[class].room_above(levels[class]));
        let (Some(of_both), Some(small), Some(large)) = (of_both, small, large) else {
            return Watermark::Crossed;
        };
        let wanting = class.index();
        let of_other = of_both.zip(of_both, |room, _| room / OTHER_PART);
        let of_wanting = of_both.zip(of_other, |room, other| room - other);
        for (class, own) in [small, large].into_iter().enumerate() {
            let room = if class == wanting { of_wanting } else { of_other };
            self.shares[class].set(levels[class], own, room);
            self.follow_pending(class);
        }
        self.shared_at.store(settings, Relaxed);
        Watermark::Within
    }

    /// Counts a block that was freed and is free at once. Lane lock held.
    #[inline]
    pub fn on_free(&self, class: SizeClass, requested: u64, allocated: u64) -> Watermark {
        let counters = &self.classes[class.index()];
        add(&counters.frees, 1);
        add(&counters.requested_freed, requested);
        add(&counters.allocated_freed, allocated);
        self.inactive_watermark()
    }

    /// Counts a block, just freed, that waits for other streams. It is still active, so the room up
    /// to the watermarks stays the same. Lane lock held.
    pub fn on_pending(&self, class: SizeClass, allocated: u64) -> Watermark {
        let counters = &self.classes[class.index()];
        add(&counters.pending_bytes, allocated);
        add(&counters.pending_blocks, 1);
        self.follow_pending(class.index());
        self.inactive_watermark_with_pending()
    }

    /// Counts a pending block that has become free: the lane has more room for active blocks by its
    /// bytes, and less for inactive ones. Lane lock held.
    pub fn on_ready(&self, class: SizeClass, allocated: u64) -> Watermark {
        let counters = &self.classes[class.index()];
        add(&counters.pending_bytes, allocated.wrapping_neg());
        add(&counters.pending_blocks, 1u64.wrapping_neg());
        self.follow_pending(class.index());
        self.inactive_watermark_with_pending()
    }

    /// The bytes of live blocks of `class`. Lane lock held.
    #[inline]
    pub fn live_bytes(&self, class: SizeClass) -> u64 {
        self.classes[class.index()].live_bytes()
    }

    /// Adjusts what may be live of a class to what is pending now.
    fn follow_pending(&self, class: usize) {
        self.allowances[class].follow(&self.shares[class], self.classes[class].pending());
    }

    /// What is pending for both classes.
    fn pending(&self) -> Pending {
        self.classes[0].pending().plus(self.classes[1].pending())
    }

    /// [`Self::inactive_watermark`] after a block has become pending or ready.
    fn inactive_watermark_with_pending(&self) -> Watermark {
        self.floor.follow(self.pending());
        self.inactive_watermark()
    }

    #[inline]
    fn inactive_watermark(&self) -> Watermark {
        let live_bytes = self.classes[0].live_bytes() + self.classes[1].live_bytes();
        if self.floor.is_above(live_bytes) { Watermark::Crossed } else { Watermark::Within }
    }

    /// Counts the allocation just counted as a miss, not served by the lane. Lane lock held.
    pub fn on_miss(&self) {
        add(&self.misses, 1);
    }

    /// Sets [`Self::held_bytes`]. The caller refreshes the watermarks.
    pub fn set_held_bytes(&self, bytes: u64) {
        self.held_bytes.store(bytes, Relaxed);
    }

    /// The bytes of all blocks of the lane that have memory.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// The bytes of all live blocks: exact if no other thread changes the lane meanwhile.
    pub fn allocated_bytes(&self) -> u64 {
        self.classes.iter().map(|counters| counters.levels().allocated).sum()
    }

    /// The bytes of all blocks so far.
    pub fn allocated_total(&self) -> u64 {
        self.classes.iter().map(|counters| counters.allocated_total.load(Relaxed)).sum()
    }

    /// The bytes of all blocks that were freed so far.
    pub fn freed_total(&self) -> u64 {
        self.classes.iter().map(|counters| counters.allocated_freed.load(Relaxed)).sum()
    }

    /// The most bytes that were ever live in the lane when sums were made, and now.
    pub fn live_peak(&self) -> u64 {
        self.peak_of(&self.snapshot())
    }

    fn peak_of(&self, now: &Snapshot) -> u64 {
        self.most_allocated.load(Relaxed).max(now.all.allocated)
    }

    /// Returns true if a block of the lane has memory. Otherwise all its levels are 0, and it gets
    /// memory before it changes them: the watermarks are refreshed then.
    fn is_in_use(&self) -> bool {
        self.held_bytes.load(Relaxed) > 0
    }

    /// The lane's free bytes: exact if no other thread changes the lane meanwhile.
    pub fn inactive_bytes(&self) -> u64 {
        self.snapshot().inactive
    }

    /// The lane's levels.
    pub fn snapshot(&self) -> Snapshot {
        let classes = self.levels();
        let all = classes[0].zip(classes[1], u64::saturating_add);
        let inactive = self.held_bytes.load(Relaxed).saturating_sub(all.active);
        Snapshot { classes, all, inactive }
    }

    /// Sets the watermarks at the distance `room` from `levels`.
    fn set_watermarks(&self, levels: &Snapshot, room: &Snapshot) {
        set(&self.most_allocated, self.peak_of(levels));
        let bounds = levels.zip(*room, u64::saturating_add);
        for (ceilings, bounds) in self.class_ceilings.iter().zip(bounds.classes) {
            ceilings.set(bounds);
        }
        self.ceilings.set(bounds.all);
        self.settings.store(self.settings.load(Relaxed).wrapping_add(1), Release);
        self.floor.set(levels.all.active.saturating_sub(room.inactive), self.pending());
    }

    /// The levels of each class.
    fn levels(&self) -> [Levels; 2] {
        self.classes.each_ref().map(ClassCounters::levels)
    }

    /// Returns true if the lane is beyond one of its watermarks.
    fn is_beyond(&self) -> bool {
        let levels = self.levels();
        let all = levels[0].zip(levels[1], u64::saturating_add);
        let is_over =
            |(ceilings, levels): (&Ceilings, Levels)| ceilings.room_above(levels).is_none();
        self.class_ceilings.iter().zip(levels).any(is_over)
            || is_over((&self.ceilings, all))
            || self.floor.is_above(all.allocated)
    }

    /// The lane's totals since the start for blocks of `class`.
    pub fn totals(&self, class: SizeClass) -> Totals {
        self.classes[class.index()].totals()
    }

    /// The number of allocations that were misses.
    pub fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }
}

/// What the lanes of a device do not know.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// Inactive bytes above a lane's share of this cross a watermark; `u64::MAX`: no limit.
    pub inactive_limit_bytes: u64,
    /// Bytes that are reserved and in no lane.
    pub inactive_bytes: u64,
}

/// The peaks of one device, under a lock of the device.
#[derive(Debug, Default)]
pub struct Peaks {
    levels: Snapshot,
    /// The lanes that were last added up, by their number among all, with their levels. Watermarks
    /// are set from these and not from the lane's present levels; otherwise the shares could add up
    /// to more than the room. A lane without memory gets no share: a program may have thousands.
    seen: Vec<(usize, Snapshot)>,
}

impl Peaks {
    /// The highest sums so far.
    pub fn levels(&self) -> Snapshot {
        self.levels
    }

    /// Raises the peaks to the sums over `lanes` and what is `outside` of them, sets the
    /// watermarks, and returns the sums.
    pub fn refresh<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a LaneCounters> + Clone,
        outside: Outside,
        turn: Turn,
    ) -> Snapshot {
        for _ in 1..MOST_ROUNDS {
            let sums = self.add_up(lanes.clone(), outside, turn);
            // Mostly none has changed. A lane alone has the whole room, wherever it is just now.
            let is_beyond = |(lane, seen): (&LaneCounters, &Snapshot)| {
                lane.levels() != seen.classes && lane.is_beyond()
            };
            if self.seen.len() < 2 || !self.seen_of(lanes.clone()).any(is_beyond) {
                return sums;
            }
        }
        self.add_up(lanes, outside, turn)
    }

    fn add_up<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a LaneCounters> + Clone,
        outside: Outside,
        turn: Turn,
    ) -> Snapshot {
        self.seen.clear();
        let in_use = lanes.clone().enumerate().filter(|(_, lane)| lane.is_in_use());
        self.seen.extend(in_use.map(|(number, lane)| (number, lane.snapshot())));
        let mut sums: Snapshot = self.seen.iter().map(|&(_, levels)| levels).sum();
        sums.inactive += outside.inactive_bytes;
        self.levels = self.levels.zip(sums, u64::max);
        let mut bounds = self.levels;
        // Each free near this peak would cross a floor, in every thread.
        if turn == Turn::Crowded && self.seen.len() > 1 {
            bounds.inactive = u64::MAX;
        }
        bounds.inactive = bounds.inactive.min(outside.inactive_limit_bytes);
        let room = bounds.zip(sums, u64::saturating_sub);
        let lane_count = self.seen.len().max(1) as u64;
        let share = match lane_count {
            1 => room,
            // Fifteen divisions less for what most programs with several streams have.
            2 => room.zip(room, |room, _| room / 2),
            _ => room.zip(room, |room, _| room / lane_count),
        };
        // What the division leaves is not nothing: a lane may need room for one block again and again.
        let rest = room.zip(share, |room, share| room - share * (lane_count - 1));
        let beyond = self.seen_of(lanes.clone()).position(|(lane, _)| lane.is_beyond());
        for (index, (lane, levels)) in self.seen_of(lanes).enumerate() {
            lane.set_watermarks(levels, if Some(index) == beyond { &rest } else { &share });
        }
        // The lanes are looked at after they can see these.
        fence(SeqCst);
        sums
    }

    /// Those of `lanes` that were last added up, each with its levels then.
    fn seen_of<'a>(
        &self,
        lanes: impl Iterator<Item = &'a LaneCounters>,
    ) -> impl Iterator<Item = (&'a LaneCounters, &Snapshot)> {
        let mut seen = self.seen.iter().peekable();
        lanes.enumerate().filter_map(move |(number, lane)| {
            let (_, levels) = seen.next_if(|(seen, _)| *seen == number)?;
            Some((lane, levels))
        })
    }

    /// Forgets the peaks: the next refresh makes the sums of then the peaks.
    pub fn forget(&mut self) {
        self.levels = Snapshot::default();
    }
}

/// Adds to a counter that only the caller may write; returns the sum.
#[inline]
fn add(counter: &AtomicU64, n: u64) -> u64 {
    let sum = counter.load(Relaxed).wrapping_add(n);
    counter.store(sum, Relaxed);
    sum
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "counters_models.rs"]
mod models;

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
