//! When the fragmentation watch (`fragmentation`) acts, and who is told of it.
//!
//! **Hysteresis.** What was returned may be missed at once. So the watch waits until the driver has
//! given `patience` times as much as was returned. Patience doubles each time memory has grown back
//! to nine tenths of what it was, and is 1 again when it has not.

use std::fmt;
use std::sync::Arc;

use crate::base::DeviceOrdinal;
use crate::base::lock::{Lock, rank};

/// Memory that has grown back to this part of what it was is needed.
const NEEDED_PART: f64 = 0.9;
/// The most that patience becomes.
const MOST_PATIENCE: u64 = 1 << 20;

/// What a compaction did; all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Held before.
    pub reserved_bytes: u64,
    /// Free of it: neither live nor pending.
    pub free_bytes: u64,
    /// Returned to the driver.
    pub released_bytes: u64,
}

/// Called after each compaction, with no lock held.
pub type CompactionCallback = Arc<dyn Fn(DeviceOrdinal, &Compaction) + Send + Sync>;

/// The callback of a heap.
#[derive(Default)]
pub(super) struct Told(Lock<Option<CompactionCallback>, { rank::LEAF }>);

impl Told {
    pub(super) fn set(&self, callback: Option<CompactionCallback>) {
        let before = std::mem::replace(&mut *self.0.lock(), callback);
        drop(before);
    }

    pub(super) fn get(&self) -> Option<CompactionCallback> {
        self.0.lock().clone()
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Told").finish_non_exhaustive()
    }
}

/// When a device is compacted next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Not before the driver has given so much.
    next_taken_bytes: u64,
    patience: u64,
    /// Held before the last compaction.
    before_bytes: u64,
}

/// What a device holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) reserved_bytes: u64,
    pub(super) free_bytes: u64,
    /// Ever taken from the driver.
    pub(super) taken_bytes: u64,
}

impl Watch {
    /// The bytes to return, if it is time and more than `above` of what is held is free.
    pub(super) fn excess_bytes(&mut self, held: Held, above: f64) -> Option<u64> {
        let (reserved, free) = (held.reserved_bytes as f64, held.free_bytes as f64);
        if held.taken_bytes < self.next_taken_bytes || free <= above * reserved {
            return None;
        }
        let is_needed = reserved >= self.before_bytes as f64 * NEEDED_PART;
        self.patience = match self.patience {
            0 => 1,
            patience if is_needed => (patience * 2).min(MOST_PATIENCE),
            _ => 1,
        };
        self.before_bytes = held.reserved_bytes;
        // Then (free - excess) / (reserved - excess) is half of `above`.
        Some(((free - above / 2.0 * reserved) / (1.0 - above / 2.0)) as u64)
    }

    /// So much was returned of the `excess_bytes`.
    pub(super) fn wait(&mut self, held: Held, excess_bytes: u64, released_bytes: u64) {
        // If nothing could be returned, that does not change soon.
        let bytes = if released_bytes == 0 { excess_bytes } else { released_bytes };
        let wait_bytes = bytes.max(1).saturating_mul(self.patience);
        self.next_taken_bytes = held.taken_bytes.saturating_add(wait_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(reserved_bytes: u64, free_bytes: u64, taken_bytes: u64) -> Held {
        Held { reserved_bytes, free_bytes, taken_bytes }
    }

    #[test]
    fn half_of_the_part_is_left() {
        let mut watch = Watch::default();
        assert_eq!(watch.excess_bytes(held(1000, 300, 1000), 0.3), None);
        let bytes = watch.excess_bytes(held(1000, 400, 1000), 0.3).unwrap();
        let left = (400 - bytes) as f64 / (1000 - bytes) as f64;
        assert!((left - 0.15).abs() < 0.002, "{bytes}: {left}");
        assert!(watch.excess_bytes(held(1000, 1000, 1000), 0.3).unwrap() <= 1000);
    }

    #[test]
    fn memory_that_grows_back_is_returned_less_and_less_often() {
        let (mut watch, mut taken, mut compactions) = (Watch::default(), 0, 0);
        for _ in 0..1000 {
            // A program that needs all of it in each cycle.
            taken += 400;
            if let Some(bytes) = watch.excess_bytes(held(1000, 400, taken), 0.3) {
                watch.wait(held(1000, 400, taken), bytes, 400);
                compactions += 1;
            }
        }
        assert!((5..=12).contains(&compactions), "{compactions}");
        // It is another program now, which does not.
        watch.next_taken_bytes = 0;
        assert!(watch.excess_bytes(held(500, 400, taken), 0.3).is_some());
        assert_eq!(watch.patience, 1);
    }

    #[test]
    fn what_cannot_be_returned_is_not_tried_at_each_miss() {
        let mut watch = Watch::default();
        let bytes = watch.excess_bytes(held(1000, 900, 1000), 0.3).unwrap();
        watch.wait(held(1000, 900, 1000), bytes, 0);
        assert_eq!(watch.excess_bytes(held(1000, 900, 1001), 0.3), None);
    }
}
