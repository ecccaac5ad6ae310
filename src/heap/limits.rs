//! The limits that the user sets on what the heap holds, and changing them while it is in use.

use super::state::DeviceHeap;
use crate::base::Result;
use crate::config::Settings;
use crate::driver::MemoryInfo;
use crate::memory::{Taken, Wanted};

impl DeviceHeap<'_> {
    /// `Heap::memory_info` of the device.
    pub(super) fn memory_info(self) -> Result<MemoryInfo> {
        let info = self.driver.memory_info()?;
        let cached_bytes: u64 = self.lanes().map(|lane| lane.counters.inactive_bytes()).sum();
        let free_bytes = info.free_bytes.min(self.room_bytes()).saturating_add(cached_bytes);
        // Of managed memory, what is cached may not be on the device.
        let free_bytes = free_bytes.min(self.usable_bytes()).min(self.ledger.total_bytes());
        Ok(MemoryInfo { free_bytes, total_bytes: self.ledger.total_bytes() })
    }

    /// The bytes that the driver has free, without what contexts and other libraries have; `None` if it
    /// returns an error. Legal in any capture (measured, docs/benchmarks).
    pub(super) fn driver_free_bytes(self) -> Option<u64> {
        self.driver.memory_info().ok().map(|info| info.free_bytes)
    }

    /// The bytes to release before the device can hold `bytes` more.
    pub(super) fn missing_bytes(self, bytes: u64) -> u64 {
        // If the driver returns an error, nothing counts as free. Managed memory is evicted for more.
        let free_bytes = match self.is_managed() {
            true => u64::MAX,
            false => self.driver_free_bytes().unwrap_or(0),
        };
        let wanted_bytes = self.backing.charged_bytes(bytes);
        wanted_bytes.saturating_sub(self.room_bytes().min(free_bytes))
    }

    /// Asks the processes that share the device for what is missing to charge `bytes` more, and calls
    /// `take` once they gave something, until it returns true or nothing more comes.
    pub(super) fn ask_neighbours(self, bytes: u64, mut take: impl FnMut() -> bool) {
        let bytes = self.backing.charged_bytes(bytes);
        // Nobody can help against a limit of our own.
        let is_allowed = self.ledger.room_bytes() >= bytes;
        if let Some(neighbours) = self.ledger.neighbours().filter(|_| is_allowed) {
            let wanted = Wanted { bytes, missing_bytes: self.missing_bytes(bytes) };
            neighbours.ask(wanted, &mut || match take() {
                true => Taken::All,
                false => Taken::Missing(self.missing_bytes(bytes)),
            });
        }
    }

    /// How much more may be charged: by the limit, and by what other processes leave.
    fn room_bytes(self) -> u64 {
        self.ledger.room_bytes().min(self.ledger.shared_room_bytes())
    }

    /// Applies what differs between the `old` settings and the `new`.
    pub(super) fn apply(self, old: &Settings, new: &Settings) {
        if old.memory_fraction != new.memory_fraction {
            self.set_memory_fraction(new.memory_fraction);
        }
        if old.memory_limit_bytes != new.memory_limit_bytes {
            self.set_memory_limit(new.memory_limit_bytes);
        }
        if old.cache_size_bytes != new.cache_size_bytes {
            self.set_cache_limit_bytes(new.cache_size_bytes.unwrap_or(u64::MAX));
            self.settle();
        }
    }
}
