//! Sums at one moment, and since the start, of a lane's or a device's counters (`counters`).

use crate::base::size::SizeClass;

/// Blocks of one or both size classes at one moment, of a lane or of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Live bytes as requested.
    pub requested: u64,
    /// Bytes of live blocks.
    pub allocated: u64,
    /// Bytes of blocks that are live, or freed but may still be in use by other streams.
    pub active: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Blocks that are live, or freed but may still be in use by other streams.
    pub active_blocks: u64,
}

/// All levels at one moment, of a lane or of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By size class.
    pub classes: [Levels; 2],
    /// For both together.
    pub all: Levels,
    /// Bytes reserved and not active: cached.
    pub inactive: u64,
}

/// Sums of a lane's or a device's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes requested.
    pub requested: u64,
    /// Bytes of blocks allocated.
    pub allocated: u64,
    /// Bytes of blocks freed.
    pub freed: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
}

impl Levels {
    pub(super) fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requested: f(self.requested, other.requested),
            allocated: f(self.allocated, other.allocated),
            active: f(self.active, other.active),
            blocks: f(self.blocks, other.blocks),
            active_blocks: f(self.active_blocks, other.active_blocks),
        }
    }
}

impl Snapshot {
    pub(super) fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            classes: SizeClass::ALL.map(|class| {
                let index = class.index();
                self.classes[index].zip(other.classes[index], &f)
            }),
            all: self.all.zip(other.all, &f),
            inactive: f(self.inactive, other.inactive),
        }
    }
}

impl std::iter::Sum for Snapshot {
    fn sum<I: Iterator<Item = Self>>(snapshots: I) -> Self {
        snapshots.fold(Self::default(), |sum, lane| sum.zip(lane, u64::saturating_add))
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
        })
    }
}
