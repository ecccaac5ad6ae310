//! How far a lane may go up, and down, before the sums over all lanes must be made
//! ([`counters`](super::counters)).
//!
//! Down, there is one *floor*, for the peak of inactive bytes. Up, there is a *ceiling* for each level
//! that has a peak: requested bytes, allocated bytes and blocks, live and active, of each size class
//! and of both together. To compare with all of them would be half of what an allocation costs here.
//! So a comparison also shares out the room that both classes have together, and until one of them
//! leaves its [`Share`], no more is compared than that:
//!
//! ```text
//! room of a class = what is left of its ceiling, at most its part of what is left of that of both:
//!                   most for the class that has left its share, the rest for the other
//! share           = level then + room
//! no level passes its ceiling while both classes stay within their shares
//! may be live     = min(live share, active share − pending)            follows what is pending
//! ```
//!
//! So a program that repeats itself compares hardly ever: what was freed makes room within a share.
//! New ceilings end both shares.

use super::levels::Levels;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most of each level before the sums must be made.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Ceilings(Bounds);

/// The fewest bytes that may be live (so the most that may be inactive) before the sums must be made.
/// Each free reads the first field.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Floor {
    /// The fewest that may be live with the present pending bytes.
    current: AtomicU64,
    active: AtomicU64,
}

/// The most that a class may have live before levels are compared with their ceilings: what each
/// allocation reads of its [`Share`].
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Allowance {
    requested: AtomicU64,
    allocated: AtomicU64,
    blocks: AtomicU64,
}

/// The most of each level of a class before levels are compared with their ceilings. Only the lane
/// writes it.
#[derive(Debug, Default)]
pub(super) struct Share(Bounds);

/// A bound for each level.
#[derive(Debug, Default)]
#[repr(C)]
struct Bounds {
    requested: AtomicU64,
    allocated: AtomicU64,
    active: AtomicU64,
    blocks: AtomicU64,
    active_blocks: AtomicU64,
}

/// Live bytes and blocks.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) blocks: u64,
}

/// Bytes and blocks that are freed but may still be in use by other streams.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

impl Bounds {
    fn levels(&self) -> Levels {
        Levels {
            requested: self.requested.load(Relaxed),
            allocated: self.allocated.load(Relaxed),
            active: self.active.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            active_blocks: self.active_blocks.load(Relaxed),
        }
    }

    fn set(&self, bounds: Levels) {
        set(&self.requested, bounds.requested);
        set(&self.allocated, bounds.allocated);
        set(&self.active, bounds.active);
        set(&self.blocks, bounds.blocks);
        set(&self.active_blocks, bounds.active_blocks);
    }
}

impl Ceilings {
    /// What is left above `levels`; `None` if one of them has passed its ceiling.
    pub(super) fn room_above(&self, levels: Levels) -> Option<Levels> {
        let bounds = self.0.levels();
        let is_within = levels.zip(bounds, u64::min) == levels;
        is_within.then(|| bounds.zip(levels, |bound, level| bound - level))
    }

    pub(super) fn set(&self, bounds: Levels) {
        self.0.set(bounds);
    }
}

impl Floor {
    /// Returns true if `live` bytes are fewer.
    #[inline]
    pub(super) fn is_above(&self, live: u64) -> bool {
        live < self.current.load(Relaxed)
    }

    /// Sets the floor to `active` bytes, live or pending; `pending` is pending now.
    pub(super) fn set(&self, active: u64, pending: Pending) {
        set(&self.active, active);
        self.follow(pending);
    }

    /// Adjusts the floor to what is pending now.
    pub(super) fn follow(&self, pending: Pending) {
        set(&self.current, self.active.load(Relaxed).saturating_sub(pending.bytes));
    }
}

impl Allowance {
    /// Returns true if so much may be live.
    #[inline(always)]
    pub(super) fn covers(&self, live: Live) -> bool {
        live.allocated <= self.allocated.load(Relaxed)
            && live.requested <= self.requested.load(Relaxed)
            && live.blocks <= self.blocks.load(Relaxed)
    }

    /// Adjusts what may be live to what is pending now.
    pub(super) fn follow(&self, Share(share): &Share, pending: Pending) {
        let least = |live: &AtomicU64, active: &AtomicU64, pending| {
            live.load(Relaxed).min(active.load(Relaxed).saturating_sub(pending))
        };
        let Bounds { requested, allocated, active, blocks, active_blocks } = share;
        self.requested.store(requested.load(Relaxed), Relaxed);
        self.allocated.store(least(allocated, active, pending.bytes), Relaxed);
        self.blocks.store(least(blocks, active_blocks, pending.blocks), Relaxed);
    }
}

impl Share {
    /// The share of a class with these `levels`, of whose own ceilings `own` is left, and which gets `room` of
    /// what is left of those of both classes.
    pub(super) fn set(&self, levels: Levels, own: Levels, room: Levels) {
        let room = own.zip(room, u64::min);
        self.0.set(levels.zip(room, |level, room| level + room));
    }
}

impl Pending {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, blocks: self.blocks + other.blocks }
    }
}

/// Writes only a different value, because the lane's own thread has the cache line.
pub(super) fn set(watermark: &AtomicU64, value: u64) {
    if watermark.load(Relaxed) != value {
        watermark.store(value, Relaxed);
    }
}
