//! The addresses of a lane: how large its areas are, and what is done when they run out.
//!
//! A window cannot cross areas, so a lane's first area of each class is a *range* in which all that
//! it will ever need has room, shadows included. Where there is no room for ranges, areas double.

use std::sync::atomic::Ordering::Relaxed;

use super::super::state::{Climb, DeviceHeap, Extents};
use super::Outcome;
use crate::base::size::{Bytes, GIB, MIB, SizeClass};
use crate::base::{Error, Status};
use crate::driver::DriverError;
use crate::memory::{Refusal, Segment};

/// A lane's range for large blocks is this many times the device's memory, rounded up to a power of
/// two. Most of it is for the views that extents have left.
const LARGE_AREA_DEVICES: u64 = 16;
/// Its range for small blocks is this part of the memory.
const SMALL_AREA_PART: u64 = 4;
/// All ranges together take at most so many times the device's memory, and so many bytes. Each takes at
/// most this part of what is left, a power of two, so that ranges come to lie where others were: the
/// directory keeps a table for each place. A lane for which there is hardly any gets a small range, and,
/// when that is full, another as large as all that it has.
const MOST_AREA_DEVICES: u64 = 64;
const MOST_AREA_BYTES: u64 = 1 << 43;
const LEFT_PART: u64 = 4;
/// A range is at most so many bytes, so that a few lanes of several devices have one each.
const LARGEST_AREA_BYTES: u64 = 1 << 41;
const LEAST_SMALL_AREA_BYTES: u64 = 64 * MIB;
const LEAST_LARGE_AREA_BYTES: u64 = GIB;

impl Extents {
    /// Adds addresses for the request.
    pub(super) fn extend_addresses(&self, climb: &Climb<'_>) -> crate::base::Result<Outcome> {
        match self.make_bare_addresses(climb, self.charged_bytes(climb.block_bytes)) {
            Ok(()) => Ok(Outcome::More),
            Err(Refusal::AddressSpace(error)) => {
                Err(no_addresses(climb.device, climb.block_bytes, error))
            }
            Err(_) => Ok(Outcome::Short),
        }
    }

    /// Makes `bytes` of bare addresses side by side.
    pub(super) fn make_bare_addresses(&self, climb: &Climb<'_>, bytes: u64) -> Result<(), Refusal> {
        let class = SizeClass::of(climb.block_bytes);
        let has_bare = || climb.lane.lock().has_bare(class, bytes);
        let mut added = self.add_area(climb, bytes);
        if added.is_err() {
            // Shadows only take addresses: without them there may be enough.
            self.drop_all_shadows(climb);
            if has_bare() {
                return Ok(());
            }
            added = self.add_area(climb, bytes);
        }
        if added.is_err() && !has_bare() && climb.device.wait_for_device() {
            self.drop_all_shadows(climb);
            added = self.add_area(climb, bytes);
        }
        if has_bare() { Ok(()) } else { added }
    }

    /// Reserves addresses for at least `bytes`.
    fn add_area(&self, climb: &Climb<'_>, bytes: u64) -> Result<(), Refusal> {
        let class = SizeClass::of(climb.block_bytes);
        let granule_bytes = self.store.granule_bytes();
        let device_bytes = climb.device.ledger.total_bytes().next_power_of_two();
        let (range_bytes, least_bytes) = match class {
            SizeClass::Small => (device_bytes / SMALL_AREA_PART, LEAST_SMALL_AREA_BYTES),
            SizeClass::Large => (device_bytes * LARGE_AREA_DEVICES, LEAST_LARGE_AREA_BYTES),
        };
        let range_bytes = range_bytes.min(LARGEST_AREA_BYTES);
        let held_bytes = climb.lane.lock().area_bytes(class);
        let doubling_bytes = held_bytes.max(least_bytes);
        let most_bytes = device_bytes.saturating_mul(MOST_AREA_DEVICES).min(MOST_AREA_BYTES);
        let range_beside = |all_bytes: u64| {
            let share_bytes = most_bytes.saturating_sub(all_bytes) / LEFT_PART;
            let range_bytes = range_bytes.min(1 << share_bytes.max(1).ilog2());
            Some(range_bytes).filter(|&range_bytes| range_bytes >= doubling_bytes)
        };
        // Counted first: many threads may be here at once.
        let count_it = |all_bytes| Some(all_bytes + range_beside(all_bytes)?);
        let counted = self.area_bytes.fetch_update(Relaxed, Relaxed, count_it);
        let counted_bytes = counted.ok().and_then(range_beside);
        // One range, so that addresses are in the order in which memory was made.
        let communication = climb.device.pools.communication(climb.lane.pool());
        let alignment_bytes =
            communication.as_ref().map_or(0, |made_for| made_for.handles().granularity_bytes());
        let first_bytes = match communication {
            Some(_) => range_bytes,
            None => counted_bytes.unwrap_or(doubling_bytes),
        };
        let mut reserved = Err(Refusal::Limit);
        for area_bytes in [first_bytes, doubling_bytes, bytes] {
            let area_bytes = area_bytes.max(bytes).next_multiple_of(granule_bytes);
            reserved = match self.store.reserve(area_bytes, alignment_bytes) {
                Ok(address) => Ok(Segment { address, bytes: area_bytes, class }),
                Err(error) => Err(Refusal::AddressSpace(error)),
            };
            if reserved.is_ok() {
                break;
            }
            // A smaller gap may do, perhaps once unused areas are gone.
            self.release_bare_areas(climb.device);
        }
        self.area_bytes.fetch_sub(counted_bytes.unwrap_or(0), Relaxed);
        let area = reserved?;
        self.area_bytes.fetch_add(area.bytes, Relaxed);
        climb.lane.lock().add_area(area);
        Ok(())
    }
}

/// A shortage of addresses, which no memory given back ends.
#[cold]
pub(super) fn no_addresses(device: DeviceHeap<'_>, block_bytes: u64, error: DriverError) -> Error {
    let status = if error.is_out_of_memory() { Status::OutOfMemory } else { Status::DriverFailed };
    let ordinal = device.ordinal;
    let bytes = Bytes(block_bytes);
    Error::new(status, format!("device {ordinal}: no address space for {bytes}: {error}"))
}
