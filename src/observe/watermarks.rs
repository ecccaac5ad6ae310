//! How far a lane may go up, and down, before the sums over all lanes must be made
//! ([`counters`](super::counters)).
//!
//! Down, there is one *floor*, for the peak of inactive bytes. Up, there is a *ceiling* for each level
//! that has a peak: requested bytes, allocated bytes and blocks, live and active, of each size class
//! and of both together. To compare with all of them would be half of what an allocation costs here.
//! So a comparison also finds out how far the *totals* of the class may go, which never fall:
//!
//! ```text
//! room = the least distance of a level from its ceiling; of both classes together, half of what is
//!        left of it without the other class's headroom, which ends if that is more
//! no level passes its ceiling while    allocated total ≤ allocated total then + room in bytes
//!                               and    allocations     ≤ allocations then + room in blocks
//! ```
//!
//! Frees, and blocks that become pending or ready, never lessen the room. It is half, so that the other
//! class finds some, too. New ceilings end the [`Headroom`].

use super::levels::Levels;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most that may be live before the sums must be made.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    requested: AtomicU64,
    allocated: Ceiling,
    blocks: Ceiling,
}

/// Bounds live bytes, and active (live or pending) bytes: current = min(live, active − pending).
#[derive(Debug, Default)]
struct Ceiling {
    /// The most that may be live with the present pending bytes.
    current: AtomicU64,
    live: AtomicU64,
    active: AtomicU64,
}

/// The fewest bytes that may be live (so the most that may be inactive) before the sums must be made.
#[derive(Debug, Default)]
pub(super) struct Floor {
    /// The fewest that may be live with the present pending bytes.
    current: AtomicU64,
    active: AtomicU64,
}

/// The live bytes and blocks.
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

/// How many bytes and blocks may be allocated before a level passes its ceiling.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// The totals of a class up to which no level passes its ceiling; 0: not known.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    allocated_total: AtomicU64,
    allocations: AtomicU64,
    /// The allocations when it was found.
    found_at: AtomicU64,
}

impl Ceilings {
    /// The room above `live`; `None` if a level has passed its ceiling. No block has fewer bytes
    /// than were requested.
    #[inline]
    pub(super) fn room_above(&self, live: Live) -> Option<Room> {
        let requested = self.requested.load(Relaxed).checked_sub(live.requested)?;
        let allocated = self.allocated.current.load(Relaxed).checked_sub(live.allocated)?;
        let blocks = self.blocks.current.load(Relaxed).checked_sub(live.blocks)?;
        Some(Room { bytes: requested.min(allocated), blocks })
    }

    /// Sets the ceilings to `levels` + `room`; `pending` is pending now.
    pub(super) fn set(&self, levels: &Levels, room: &Levels, pending: Pending) {
        let bounds = levels.zip(*room, u64::saturating_add);
        set(&self.requested, bounds.requested);
        self.allocated.set(bounds.allocated, bounds.active, pending.bytes);
        self.blocks.set(bounds.blocks, bounds.active_blocks, pending.blocks);
    }

    /// Adjusts the ceilings to what is pending now.
    pub(super) fn follow(&self, pending: Pending) {
        self.allocated.follow(pending.bytes);
        self.blocks.follow(pending.blocks);
    }
}

impl Ceiling {
    fn set(&self, live: u64, active: u64, pending: u64) {
        set(&self.live, live);
        set(&self.active, active);
        self.follow(pending);
    }

    fn follow(&self, pending: u64) {
        let below_active = self.active.load(Relaxed).saturating_sub(pending);
        set(&self.current, self.live.load(Relaxed).min(below_active));
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
    #[inline]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            requested: self.requested + other.requested,
            allocated: self.allocated + other.allocated,
            blocks: self.blocks + other.blocks,
        }
    }
}

impl Pending {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, blocks: self.blocks + other.blocks }
    }
}

impl Room {
    /// The room of one class, where its own is `self` and that of both together is `of_both`.
    #[inline]
    pub(super) fn within(self, of_both: Self) -> Self {
        Self {
            bytes: self.bytes.min(of_both.bytes / 2),
            blocks: self.blocks.min(of_both.blocks / 2),
        }
    }

    /// What is left of it without `other`; `None` if that is more.
    pub(super) fn less(self, other: Self) -> Option<Self> {
        let bytes = self.bytes.checked_sub(other.bytes)?;
        Some(Self { bytes, blocks: self.blocks.checked_sub(other.blocks)? })
    }
}

impl Headroom {
    /// Returns true if no level can have passed its ceiling at these totals.
    #[inline]
    pub(super) fn covers(&self, allocated_total: u64, allocations: u64) -> bool {
        allocated_total <= self.allocated_total.load(Relaxed)
            && allocations <= self.allocations.load(Relaxed)
    }

    /// What is left of it at these totals.
    pub(super) fn above(&self, allocated_total: u64, allocations: u64) -> Room {
        let bytes = self.allocated_total.load(Relaxed).saturating_sub(allocated_total);
        let blocks = self.allocations.load(Relaxed).saturating_sub(allocations);
        Room { bytes, blocks }
    }

    /// Returns true if it was found at no more than so many allocations.
    pub(super) fn is_of_before(&self, allocations: u64) -> bool {
        self.found_at.load(Relaxed) <= allocations
    }

    /// There is `room` above these totals.
    pub(super) fn set(&self, allocated_total: u64, allocations: u64, room: Room) {
        self.allocated_total.store(allocated_total.saturating_add(room.bytes), Relaxed);
        self.allocations.store(allocations.saturating_add(room.blocks), Relaxed);
        self.found_at.store(allocations, Relaxed);
    }

    /// Nothing is known of the room any more.
    pub(super) fn end(&self) {
        set(&self.allocated_total, 0);
    }
}

/// Writes only a different value, because the lane's own thread has the cache line.
pub(super) fn set(watermark: &AtomicU64, value: u64) {
    if watermark.load(Relaxed) != value {
        watermark.store(value, Relaxed);
    }
}
