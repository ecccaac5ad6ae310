//! Putting the cache in order on request: what the program does not use goes back, the rest stays.
//!
//! | step | what |
//! |---|---|
//! | compact | pending blocks whose streams have finished become free, and join their neighbours |
//! | collect | cached memory that was not used since the previous call goes back to the driver |
//! | trim | so does what is held beyond the most that was ever live, what lay idle most first |
//!
//! The second step needs a call before it, to compare with; the third helps at once. Both keep what
//! the program comes back to: memory that it used in between, and as much as its peak needs.

use std::time::Instant;

use super::choice::Choice;
use super::state::{DeviceHeap, Heap};
use crate::base::{DeviceOrdinal, Result};

/// More than the most that was ever live is kept by this part of it, because blocks do not fill
/// what they are cut from.
const SLACK_PART: u64 = 50;

/// What [`Heap::optimize`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Optimization {
    /// Bytes held before.
    pub reserved_bytes: u64,
    /// Bytes given back to the driver.
    pub released_bytes: u64,
    /// Freed bytes that other streams had finished with: they are usable again.
    pub compacted_bytes: u64,
    /// Calls of the driver meanwhile; also those of other threads.
    pub driver_calls: u64,
    /// Time in them, in nanoseconds.
    pub driver_nanoseconds: u64,
    /// Time of it all, in nanoseconds.
    pub nanoseconds: u64,
}

impl Optimization {
    /// The sum of this and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            reserved_bytes: self.reserved_bytes + other.reserved_bytes,
            released_bytes: self.released_bytes + other.released_bytes,
            compacted_bytes: self.compacted_bytes + other.compacted_bytes,
            driver_calls: self.driver_calls + other.driver_calls,
            driver_nanoseconds: self.driver_nanoseconds + other.driver_nanoseconds,
            nanoseconds: self.nanoseconds + other.nanoseconds,
        }
    }
}

impl Heap {
    /// Puts the cache of `device` in order: makes what is free usable, and gives back what the program
    /// does not use. May wait for the device; during a capture it gives nothing back.
    pub fn optimize(&self, device: DeviceOrdinal) -> Result<Optimization> {
        Ok(self.device(device)?.optimize())
    }
}

impl DeviceHeap<'_> {
    fn optimize(self) -> Optimization {
        let began = Instant::now();
        let before = self.driver.usage();
        let reserved_bytes = self.ledger.reserved_bytes();
        let compacted_bytes = self.compact();
        let mut released_bytes = self.collect_garbage();
        let needed_bytes = self.most_live_bytes(0);
        let kept_bytes = needed_bytes.saturating_add(needed_bytes / SLACK_PART);
        let excess_bytes = self.ledger.reserved_bytes().saturating_sub(kept_bytes);
        released_bytes += self.release_and_settle(Choice::LeastNeeded { bytes: excess_bytes });
        let after = self.driver.usage();
        Optimization {
            reserved_bytes,
            released_bytes,
            compacted_bytes,
            driver_calls: after.total_calls().saturating_sub(before.total_calls()),
            driver_nanoseconds: after.nanoseconds.saturating_sub(before.nanoseconds),
            nanoseconds: began.elapsed().as_nanos() as u64,
        }
    }
}
