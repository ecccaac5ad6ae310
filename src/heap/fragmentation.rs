//! The fragmentation watch (`GENESIS_COMPACT_ABOVE`): if more than this part of what is held is free
//! after a miss, free memory returns to the driver, what lay idle most first, until half as large a
//! part is free.
//!
//! It looks after misses only. At a miss, memory that is free did not serve the request, so how much
//! there is of it is what fragmentation costs. Between misses a program may free nearly all of it,
//! which is no waste: it will have it back.
//!
//! What was returned may be missed at once; [`Watch`](super::watch::Watch) has how often it acts.

use super::choice::Choice;
use super::state::DeviceHeap;
use super::watch::{Compaction, Held};
use crate::base::size::Bytes;
use crate::config::LogLevel;

/// The name of the mark in a profile.
const MARK: &str = "compaction";

impl DeviceHeap<'_> {
    /// Compacts the device if it is time; called after a miss.
    #[inline]
    pub(super) fn watch_fragmentation(self) {
        if let Some(above) = self.heap.policy.compact_above() {
            self.compact_above(above);
        }
    }

    #[cold]
    fn compact_above(self, above: f64) {
        let reserved = self.ledger.reserved(None);
        let inactive_bytes = self.lanes().map(|lane| lane.counters.inactive_bytes()).sum();
        let held = Held {
            reserved_bytes: reserved.current,
            free_bytes: inactive_bytes,
            taken_bytes: reserved.total,
        };
        let Some(bytes) = self.watch.lock().excess_bytes(held, above) else { return };
        let released_bytes = self.release_and_settle(Choice::LeastNeeded { bytes });
        self.watch.lock().wait(held, bytes, released_bytes);
        if released_bytes == 0 {
            return;
        }
        self.heap.notes.marked(MARK);
        let Held { reserved_bytes, free_bytes, .. } = held;
        self.heap.log.write(LogLevel::Info, &format_args!(
            "device {}: compacted: {} of {} held were free, more than {above} of it; {} returned to \
             the driver",
            self.ordinal,
            Bytes(free_bytes),
            Bytes(reserved_bytes),
            Bytes(released_bytes),
        ));
        let callback = self.heap.compactions.get();
        if let Some(callback) = callback {
            callback(self.ordinal, &Compaction { reserved_bytes, free_bytes, released_bytes });
        }
    }
}
