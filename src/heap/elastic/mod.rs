//! Elastic's rungs of the ladder: memory that goes where it is needed, without a wait.
//!
//! What a request lacks is found in this order:
//!
//! | from | costs |
//! |---|---|
//! | the lane's own free extents, brought home: side by side they may be enough | bookkeeping |
//! | new extents, where what is missing stays within the *slack* over what was ever live | driver calls |
//! | a remembered stretch of addresses, whose extents are free elsewhere | bookkeeping |
//! | free extents of this lane, mapped again side by side | a mapping each, no wait |
//! | free extents of other lanes of the pool, behind their fences | and a wait on the GPU |
//! | new extents for what is still missing | driver calls |
//!
//! New extents for a block under 16 MiB are for the next requests, too: a hundredth of what was live
//! at the peak, at once. New memory is laid behind the free block that leaves the least to be added, so that the tail
//! of one extent serves together with the next. A view that an extent has left stays mapped, as
//! a shadow: remembered, until there are too many of them. Then the oldest are unmapped, once
//! the work queued through them is known to be complete.

mod area;
mod gather;
mod give_back;
mod single;

pub(super) use area::Books;
pub(super) use give_back::Kept;

use std::sync::Arc;

use super::choice::Choice;
use super::slack::Slack;
use super::state::{Climb, DeviceHeap, Extents, Pressure, Rung};
use crate::base::lock::assert_none_held;
use crate::base::size::{Bytes, GIB, MIB, SizeClass};
use crate::base::{DeviceOrdinal, Error, Status};
use crate::config::{ElasticPolicy, LogLevel, Settings};
use crate::driver::{self, Device, DriverError, HandleOptions};
use crate::memory::{ExtentId, ExtentStore, Refusal, Segment, State};
use crate::observe::DeviceEvents;
use area::Laid;
use gather::Moved;

/// Memory grows by at least this much for small blocks, in bytes …
const SMALL_GROWTH_BYTES: u64 = 2 * MIB;
/// … and for large ones by this part of what was live at the peak …
const LARGE_GROWTH_PART: u64 = 100;
/// … that are smaller than this, in bytes; extents for a larger one are for it alone.
const OWN_EXTENT_BYTES: u64 = 16 * MIB;
/// ExtentTable are at most this part of what was live at the peak, or this many bytes …
const EXTENT_PART: u64 = 200;
const EXTENT_BYTES: u64 = 32 * MIB;
/// … or this many as long as less than a part of what is held was ever freed …
const GROWING_EXTENT_BYTES: u64 = 128 * MIB;
const STEADY_PART: u64 = 3;
/// … and in any case at most this part of the memory that the device has left: where there is
/// plenty, few driver calls count, and where there is little, every page.
const ROOM_PART: u64 = 4096;
/// A lane's first area is this large, in bytes, for small blocks …
const SMALL_AREA_BYTES: u64 = 64 * MIB;
/// … and for large ones. Each further one doubles what the lane has, so that there are few; a
/// request that is larger has one of its size.
const LARGE_AREA_BYTES: u64 = GIB;
/// Between two looks at a lane another thread may take what was laid for this one: so often a
/// request tries again before it counts as failed.
const ATTEMPTS: usize = 16;

/// What came of an attempt to lay memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The lane has more free memory.
    More,
    /// Memory is short.
    Short,
}

impl Extents {
    /// The extents of the device behind `driver`, none yet; `None` if it has no virtual memory
    /// management.
    pub(super) fn open(
        driver: &Arc<dyn Device>,
        settings: &Settings,
        events: DeviceEvents,
    ) -> driver::Result<Option<Self>> {
        let wished = HandleOptions::wished(settings);
        let store = ExtentStore::open(Arc::clone(driver), wished, events)?;
        Ok(store.map(|store| Self {
            store,
            single_handle_bytes: settings.single_handle_size_bytes.unwrap_or(u64::MAX),
            policy: settings.elastic_policy,
            slack: Slack::new(settings.elastic_policy),
        }))
    }

    pub(super) fn single_handle_bytes(&self) -> u64 {
        self.single_handle_bytes
    }

    /// What extents for `bytes` take of the device.
    pub(super) fn charged_bytes(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.store.granule_bytes()).unwrap_or(u64::MAX)
    }

    /// Lets `peer` access the memory, what is held and what will be.
    pub(super) fn add_peer(&self, peer: DeviceOrdinal) -> driver::Result<()> {
        self.store.add_peer(peer)
    }

    /// The device's records of extents and memory.
    pub(super) fn books<'a>(&'a self, device: DeviceHeap<'a>) -> Books<'a> {
        Books { table: self.store.extents(), ledger: &device.state.ledger }
    }

    pub(super) fn serve(&self, climb: &Climb<'_>, pressure: Pressure) -> Rung {
        if pressure == Pressure::Releasing {
            // What other pools have left, which no other lane may take before it went back.
            climb.device.release(Choice::All);
        }
        self.serve_from_extents(climb)
    }

    /// Serves a request from extents, new or moved.
    fn serve_from_extents(&self, climb: &Climb<'_>) -> Rung {
        if climb.block_bytes >= self.single_handle_bytes {
            return self.serve_with_one_extent(climb);
        }
        for _ in 0..ATTEMPTS {
            if let Some(address) = climb.serve_from_lane() {
                return Ok(Some(address));
            }
            if self.extend(climb)? == Outcome::Short {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn extend(&self, climb: &Climb<'_>) -> crate::base::Result<Outcome> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let class = SizeClass::of(block_bytes);
        let granule = self.store.granule_bytes();
        if !lane.pool().is_private() && self.return_home(climb) {
            return Ok(Outcome::More);
        }
        if climb.wait_before_growing() {
            return Ok(Outcome::More);
        }
        let site = lane.lock().find_site(class, block_bytes, granule);
        if site.missing_bytes == 0 {
            // Another thread has just freed what is needed.
            return Ok(Outcome::More);
        }
        device.make_room(site.missing_bytes);
        let slack_bytes = self.slack_bytes(device, block_bytes) / granule * granule;
        if site.missing_bytes <= slack_bytes {
            let growth_bytes = self.growth_bytes(climb, site.missing_bytes, site.room_bytes);
            if self.lay(climb, &[], growth_bytes, site.continued)? == Outcome::More {
                return Ok(Outcome::More);
            }
        }
        if lane.pool().is_private() {
            // A captured graph knows where its memory is.
            return self.lay(climb, &[], site.missing_bytes, site.continued);
        }
        if self.restore(climb) {
            return Ok(Outcome::More);
        }
        let mut moved = self.gather(climb, site.missing_bytes, site.continued);
        let bytes_of = |moved: &[Moved]| moved.iter().map(|extent| extent.bytes).sum::<u64>();
        let (mut missing_bytes, mut room_bytes) = (site.missing_bytes, site.room_bytes);
        if site.continued.is_some() && bytes_of(&moved) > site.room_bytes {
            // They are too much for that place: then all that is needed goes elsewhere.
            (missing_bytes, room_bytes) = (block_bytes.next_multiple_of(granule), u64::MAX);
            let more_bytes = missing_bytes.saturating_sub(bytes_of(&moved));
            moved.extend(self.gather(climb, more_bytes, None));
        }
        let growth_bytes = match missing_bytes.saturating_sub(bytes_of(&moved)) {
            0 => 0,
            missing_bytes => {
                let room_bytes = room_bytes.saturating_sub(bytes_of(&moved));
                self.growth_bytes(climb, missing_bytes, room_bytes)
            }
        };
        let laid = self.lay(climb, &moved, growth_bytes, site.continued)?;
        if !moved.is_empty() {
            let peak_bytes = device.peak_active_bytes(block_bytes);
            self.slack.note_move(peak_bytes, bytes_of(&moved));
        }
        self.drop_excess_shadows(climb);
        Ok(laid)
    }

    /// How much new memory to make where `missing_bytes` are needed and addresses for `room_bytes`
    /// lie bare: some for the next requests, too, or each of them would cost driver calls of its
    /// own.
    fn growth_bytes(&self, climb: &Climb<'_>, missing_bytes: u64, room_bytes: u64) -> u64 {
        let Climb { device, block_bytes, .. } = *climb;
        let unit_bytes = match SizeClass::of(block_bytes) {
            SizeClass::Small => SMALL_GROWTH_BYTES,
            SizeClass::Large if block_bytes < OWN_EXTENT_BYTES => {
                let peak_bytes = device.peak_active_bytes(block_bytes);
                (peak_bytes / LARGE_GROWTH_PART).min(GROWING_EXTENT_BYTES)
            }
            SizeClass::Large => return missing_bytes,
        };
        let unit_bytes = unit_bytes.min(self.coarsest_bytes(device));
        missing_bytes.max(unit_bytes.next_multiple_of(self.store.granule_bytes()).min(room_bytes))
    }

    /// How much more may be held, for a request of `more_bytes`, before memory must be moved.
    fn slack_bytes(&self, device: DeviceHeap<'_>, more_bytes: u64) -> u64 {
        let peak_bytes = device.peak_active_bytes(more_bytes);
        let slack_bytes = self.slack.bytes(peak_bytes, device.usable_bytes());
        (peak_bytes + slack_bytes).saturating_sub(device.ledger.reserved_bytes())
    }

    /// Lays the extents `moved` and `growth_bytes` of new ones side by side in the lane's
    /// addresses, behind the free block at `continued` if that can still be. If not all of it
    /// can be had, everything is as it was.
    fn lay(
        &self,
        climb: &Climb<'_>,
        moved: &[Moved],
        growth_bytes: u64,
        continued: Option<u64>,
    ) -> crate::base::Result<Outcome> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        assert_none_held();
        device.meet_peers();
        // What comes from another stream is in order behind this one's next event.
        let epoch_here = lane.lock().fence.epoch();
        let epoch = |extent: &Moved| match extent.lane == lane.index {
            true => extent.epoch,
            false => epoch_here,
        };
        let mut laid: Vec<Laid> = moved
            .iter()
            .map(|extent| Laid { id: extent.id, bytes: extent.bytes, epoch: epoch(extent) })
            .collect();
        let result = self
            .create(climb, growth_bytes, &mut laid)
            .and_then(|()| self.map(climb, &laid, continued));
        match result {
            Ok(()) => Ok(Outcome::More),
            Err(refusal) => {
                self.bring_back(device, moved);
                for created in &laid[moved.len()..] {
                    self.discard(device, created.id);
                }
                match refusal {
                    Refusal::Limit => Ok(Outcome::Short),
                    Refusal::Driver(error) if error.is_out_of_memory() => Ok(Outcome::Short),
                    Refusal::Driver(error) => Err(error.into()),
                    Refusal::AddressSpace(error) => Err(no_addresses(device, block_bytes, error)),
                }
            }
        }
    }

    /// The largest that new extents should be: what hardly anything was freed beside is large and
    /// stays whole; once programs free and allocate in turn, an extent that one block keeps
    /// from the others should be little beside all that is held.
    fn extent_bytes(&self, device: DeviceHeap<'_>) -> u64 {
        let freed_bytes = device.freed_bytes();
        let is_growing = freed_bytes < device.ledger.reserved_bytes() / STEADY_PART;
        let bytes = match is_growing {
            true => GROWING_EXTENT_BYTES,
            false => (device.peak_active_bytes(0) / EXTENT_PART).max(EXTENT_BYTES),
        };
        bytes.min(self.coarsest_bytes(device))
    }

    /// The largest that a piece of new memory may be, or a granule if that is larger: by the room
    /// that the device has, and the policy.
    fn coarsest_bytes(&self, device: DeviceHeap<'_>) -> u64 {
        match self.policy {
            ElasticPolicy::Balanced => {
                device.usable_bytes().saturating_sub(device.ledger.reserved_bytes()) / ROOM_PART
            }
            ElasticPolicy::Tight => SMALL_GROWTH_BYTES,
        }
    }

    /// New extents of `bytes` together, appended to `created`.
    fn create(
        &self,
        climb: &Climb<'_>,
        bytes: u64,
        created: &mut Vec<Laid>,
    ) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        let Climb { device, block_bytes, .. } = *climb;
        if bytes > device.usable_bytes().saturating_sub(device.ledger.reserved_bytes()) {
            // Before it is made piece by piece, only to be given back again.
            return Err(Refusal::Limit);
        }
        let class = SizeClass::of(block_bytes);
        let message = format_args!("device {}: {bytes} bytes more", device.ordinal);
        device.heap.log.write(LogLevel::Debug, &message);
        let granule = self.store.granule_bytes();
        let extent_bytes = match block_bytes < self.single_handle_bytes {
            true => self.extent_bytes(device).max(granule),
            false => bytes,
        };
        let count = bytes.div_ceil(extent_bytes);
        let mut rest_bytes = bytes;
        for left in (1..=count).rev() {
            let bytes = (rest_bytes / left).next_multiple_of(granule).min(rest_bytes);
            if bytes == 0 {
                break;
            }
            let id = self.store.create(&device.ledger, bytes, class)?;
            created.push(Laid { id, bytes, epoch: 0 });
            rest_bytes -= bytes;
        }
        Ok(())
    }

    /// Maps extents side by side in the lane's addresses and makes them free blocks there.
    fn map(&self, climb: &Climb<'_>, laid: &[Laid], continued: Option<u64>) -> Result<(), Refusal> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let class = SizeClass::of(block_bytes);
        let bytes = laid.iter().map(|extent| extent.bytes).sum();
        let claimed = lane.lock().claim(class, continued, bytes);
        let (slot, address) = match claimed {
            Some(claimed) => claimed,
            None => {
                let mut added = self.add_area(climb, bytes);
                if added.is_err() {
                    // What is remembered only takes addresses: without it there may be enough.
                    self.drop_shadows_while(climb, |_| true);
                    if !lane.lock().has_bare(class, bytes) {
                        added = self.add_area(climb, bytes);
                    }
                }
                if added.is_err() && !lane.lock().has_bare(class, bytes) && device.wait_for_device()
                {
                    self.drop_shadows_while(climb, |_| true);
                    added = self.add_area(climb, bytes);
                }
                match (lane.lock().claim(class, None, bytes), added) {
                    (Some(claimed), _) => claimed,
                    (None, Err(refusal)) => return Err(refusal),
                    // Another thread was faster: then memory is short for now.
                    (None, Ok(())) => return Err(Refusal::Limit),
                }
            }
        };
        let ids: Vec<ExtentId> = laid.iter().map(|extent| extent.id).collect();
        let mapped = self.store.map(&ids, lane.index, address);
        let mut state = lane.lock();
        let books = &mut self.books(device);
        lane.settle_claim(&mut state, books, laid, slot, mapped.is_ok());
        mapped.map_err(Refusal::Driver)
    }

    /// Checks the extents of a device against the lanes whose blocks lie in them; gives the
    /// bytes that are in no lane.
    pub(super) fn validate(&self, device: DeviceHeap<'_>) -> std::result::Result<u64, String> {
        let named = |error: String| format!("device {}: {error}", device.ordinal);
        let (homes, homeless_bytes) = {
            let extents = self.store.extents();
            extents.validate().map_err(named)?;
            let homes: Vec<_> = extents.iter().map(|(id, extent)| (id, extent.clone())).collect();
            (homes, extents.homeless_bytes())
        };
        let lane_of = |index: u32| device.heap.lanes.get(index);
        for (id, extent) in &homes {
            if let Some(home) = extent.home {
                let end = home.address + extent.bytes;
                let backed = lane_of(home.lane)
                    .is_some_and(|lane| lane.lock().is_backed(home.address, end, extent.class));
                if !backed {
                    return Err(named(format!("extent {id} has no blocks at {:#x}", home.address)));
                }
            }
            for view in &extent.shadows {
                let is_shadow = lane_of(view.lane).is_some_and(|lane| {
                    let state = lane.lock();
                    state.block_at(view.address, State::Shadow).is_some()
                        || extent.is_set_aside && state.has_paused(view.address, *id)
                });
                if !is_shadow {
                    return Err(named(format!("no shadow of extent {id} at {:#x}", view.address)));
                }
            }
        }
        Ok(homeless_bytes)
    }

    /// Reserves addresses for at least `bytes`.
    fn add_area(&self, climb: &Climb<'_>, bytes: u64) -> Result<(), Refusal> {
        let class = SizeClass::of(climb.block_bytes);
        let first_bytes = match class {
            SizeClass::Small => SMALL_AREA_BYTES,
            SizeClass::Large => LARGE_AREA_BYTES,
        };
        let granule = self.store.granule_bytes();
        let usual_bytes = climb.lane.lock().area_bytes(class).max(first_bytes);
        let area_bytes = usual_bytes.next_multiple_of(granule).max(bytes);
        let mut reserved = self.store.reserve(area_bytes).map(|address| (address, area_bytes));
        if reserved.is_err_and(DriverError::is_out_of_memory) {
            // There may be no such gap and yet one that will do, perhaps after areas out of use
            // are gone.
            self.release_bare_areas(climb.device);
            reserved = self.store.reserve(bytes).map(|address| (address, bytes));
        }
        let (address, bytes) = reserved.map_err(Refusal::AddressSpace)?;
        climb.lane.lock().add_area(Segment { address, bytes, class });
        Ok(())
    }
}

/// A shortage of addresses, which giving memory back does not mend.
#[cold]
fn no_addresses(device: DeviceHeap<'_>, block_bytes: u64, error: DriverError) -> Error {
    let status = match error.is_out_of_memory() {
        true => Status::OutOfMemory,
        false => Status::DriverFailed,
    };
    let ordinal = device.ordinal;
    let bytes = Bytes(block_bytes);
    Error::new(status, format!("device {ordinal}: no address space for {bytes}: {error}"))
}
