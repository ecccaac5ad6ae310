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
//! room of a class = what is left of its ceiling, at most half of what is left of that of both
//! share           = live then + room
//! no level passes its ceiling while both classes stay within their shares
//! ```
//!
//! So a program that repeats itself compares hardly ever: what was freed makes room within a share.
//! New ceilings end both shares. A block that becomes pending is still active, so it lowers the share of
//! its class by what it was; one that becomes ready changes none.

use super::levels::Levels;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most that may be live before the sums must be made.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Ceilings {
    requested: AtomicU64,
    allocated: Ceiling,
    blocks: Ceiling,
}

/// Bounds what is live, and what is active (live or pending).
#[derive(Debug, Default)]
struct Ceiling {
    live: AtomicU64,
    active: AtomicU64,
}

/// The fewest bytes that may be live (so the most that may be inactive) before the sums must be made.
/// Each free reads the first field.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Floor {
    /// The fewest that may be live with the present pending bytes.
    current: AtomicU64,
    active: AtomicU64,
}

/// Live bytes and blocks, or how many more there may be.
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

/// The most that a class may have live before levels are compared with their ceilings. Only the lane
/// writes it.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Share {
    requested: AtomicU64,
    allocated: AtomicU64,
    blocks: AtomicU64,
}

impl Ceilings {
    /// What is left above `live`, while `pending` is active, too; `None` if a level has passed its
    /// ceiling.
    pub(super) fn room_above(&self, live: Live, pending: Pending) -> Option<Live> {
        Some(Live {
            requested: self.requested.load(Relaxed).checked_sub(live.requested)?,
            allocated: self.allocated.room_above(live.allocated, pending.bytes)?,
            blocks: self.blocks.room_above(live.blocks, pending.blocks)?,
        })
    }

    /// Sets the ceilings to `levels` + `room`.
    pub(super) fn set(&self, levels: &Levels, room: &Levels) {
        let bounds = levels.zip(*room, u64::saturating_add);
        set(&self.requested, bounds.requested);
        self.allocated.set(bounds.allocated, bounds.active);
        self.blocks.set(bounds.blocks, bounds.active_blocks);
    }
}

impl Ceiling {
    fn set(&self, live: u64, active: u64) {
        set(&self.live, live);
        set(&self.active, active);
    }

    fn room_above(&self, live: u64, pending: u64) -> Option<u64> {
        let below_active = self.active.load(Relaxed).saturating_sub(pending);
        self.live.load(Relaxed).min(below_active).checked_sub(live)
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

impl Live {
    pub(super) fn plus(self, other: Self) -> Self {
        self.zip(other, |own, other| own + other)
    }

    /// The room of one class, of which `self` is left, while `of_both` is left of both together.
    pub(super) fn shared(self, of_both: Self) -> Self {
        self.zip(of_both, |own, of_both| own.min(of_both / 2))
    }

    fn zip(self, other: Self, function: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requested: function(self.requested, other.requested),
            allocated: function(self.allocated, other.allocated),
            blocks: function(self.blocks, other.blocks),
        }
    }
}

impl Pending {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, blocks: self.blocks + other.blocks }
    }
}

impl Share {
    /// Returns true if so much may be live.
    #[inline(always)]
    pub(super) fn covers(&self, live: Live) -> bool {
        live.allocated <= self.allocated.load(Relaxed)
            && live.requested <= self.requested.load(Relaxed)
            && live.blocks <= self.blocks.load(Relaxed)
    }

    pub(super) fn set(&self, live: Live) {
        self.requested.store(live.requested, Relaxed);
        self.allocated.store(live.allocated, Relaxed);
        self.blocks.store(live.blocks, Relaxed);
    }

    /// A block of so many bytes was live, and is pending now. Less may be live by it, and as much more.
    pub(super) fn lower(&self, bytes: u64) {
        let lower =
            |bound: &AtomicU64, by| bound.store(bound.load(Relaxed).saturating_sub(by), Relaxed);
        lower(&self.allocated, bytes);
        lower(&self.blocks, 1);
    }
}

/// Writes only a different value, because the lane's own thread has the cache line.
pub(super) fn set(watermark: &AtomicU64, value: u64) {
    if watermark.load(Relaxed) != value {
        watermark.store(value, Relaxed);
    }
}
