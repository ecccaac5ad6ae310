//! Elastic's memory: extents, mapped where they are needed.
//!
//! The problem: enough memory is free, but in pieces that are not side by side. The answer: map
//! extents that are wholly free side by side at other addresses. No byte is copied and the host
//! does not wait, because the work of a stream runs in order.
//!
//! A miss needs one free block, and some bytes of it are missing. The steps, in this order; after
//! each the lane is looked at again, and the first that suffices ends it:
//!
//! | step | what is taken | costs |
//! |---|---|---|
//! | return | moved free extents of the lane, back to their origins | bookkeeping |
//! | grow a little | new extents, if reserved stays ≤ live peak + slack | driver calls |
//! | restore | a stretch of old views whose extents are free: homes again | bookkeeping |
//! | gather | wholly free extents of the lane; then siblings', after fences | a mapping each |
//! | grow | new extents for what is still missing | driver calls |
//!
//! *Siblings* are the other lanes of the device, except those of private pools. New memory is
//! mapped right after a free block, the one that needs the fewest bytes more. For a block under
//! 16 MiB at least a hundredth of the live peak is made, for the next requests as well. The view
//! that an extent leaves stays mapped, as a shadow, until there are too many (`give_back`).
//! Memory of a private pool is never moved: a captured graph knows its addresses.
//!
//! No lock is held while the driver maps. Meanwhile the addresses are *claimed*: no block, and no
//! other thread's. If a call fails, what was moved returns and what was created is released, or
//! rests until the next need; then memory counts as short.

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
use area::{Laid, Place};
use gather::Moved;

/// Small blocks: memory grows by at least so many bytes.
const SMALL_GROWTH_BYTES: u64 = 2 * MIB;
/// Large blocks under [`OWN_EXTENT_BYTES`]: it grows by at least the live peak / this.
const LARGE_GROWTH_PART: u64 = 100;
/// For a block of at least so many bytes no more is made than is missing.
const OWN_EXTENT_BYTES: u64 = 16 * MIB;
/// An extent is at most max([`EXTENT_BYTES`], live peak / this), …
const EXTENT_PART: u64 = 200;
const EXTENT_BYTES: u64 = 32 * MIB;
/// … or this many bytes while bytes freed so far are under reserved bytes / [`STEADY_PART`].
const GROWING_EXTENT_BYTES: u64 = 128 * MIB;
const STEADY_PART: u64 = 3;
/// In any case it is at most the memory that the device has left / this, or a granule: where there
/// is plenty, few driver calls count; where there is little, every page.
const ROOM_PART: u64 = 4096;
/// A lane's first area is so large, in bytes, for small blocks and for large ones. Each further one
/// doubles what the lane has, so that there are few; a larger request gets one of its size.
const SMALL_AREA_BYTES: u64 = 64 * MIB;
const LARGE_AREA_BYTES: u64 = GIB;
/// Another thread may take what was mapped for a request; it tries again so many times.
const ATTEMPTS: usize = 16;

/// What came of an attempt to get memory.
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
            // Also what private pools have left: no lane may take it before it went back.
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

    /// Brings the lane more free memory: the steps above, until one does.
    fn extend(&self, climb: &Climb<'_>) -> crate::base::Result<Outcome> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let class = SizeClass::of(block_bytes);
        let granule = self.store.granule_bytes();
        if !lane.pool().is_private() && self.return_to_origins(climb) {
            return Ok(Outcome::More);
        }
        if climb.wait_before_growing() {
            return Ok(Outcome::More);
        }
        let place = lane.lock().find_place(class, block_bytes, granule);
        if place.missing_bytes == 0 {
            // Another thread has just freed what is needed.
            return Ok(Outcome::More);
        }
        device.make_room(place.missing_bytes);
        let slack_bytes = self.slack_bytes(device, block_bytes) / granule * granule;
        if place.missing_bytes <= slack_bytes {
            let growth_bytes = self.growth_bytes(climb, place.missing_bytes, place.room_bytes);
            if self.lay(climb, &[], growth_bytes, place.continued)? == Outcome::More {
                return Ok(Outcome::More);
            }
        }
        if lane.pool().is_private() {
            // A captured graph knows where its memory is.
            return self.lay(climb, &[], place.missing_bytes, place.continued);
        }
        if self.restore(climb) {
            return Ok(Outcome::More);
        }
        let laid = self.move_and_grow(climb, &place)?;
        self.drop_excess_shadows(climb);
        Ok(laid)
    }

    /// Maps wholly free extents at `place`, and new ones for what is still missing.
    fn move_and_grow(&self, climb: &Climb<'_>, place: &Place) -> crate::base::Result<Outcome> {
        let Climb { device, block_bytes, .. } = *climb;
        let bytes_of = |moved: &[Moved]| moved.iter().map(|extent| extent.bytes).sum::<u64>();
        let (mut missing_bytes, mut room_bytes) = (place.missing_bytes, place.room_bytes);
        let mut moved = self.gather(climb, missing_bytes, place.continued);
        if place.continued.is_some() && bytes_of(&moved) > room_bytes {
            // They are too much for that place: all that is needed goes elsewhere.
            let granule_bytes = self.store.granule_bytes();
            (missing_bytes, room_bytes) = (block_bytes.next_multiple_of(granule_bytes), u64::MAX);
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
        let laid = self.lay(climb, &moved, growth_bytes, place.continued)?;
        if !moved.is_empty() {
            let peak_bytes = device.peak_active_bytes(block_bytes);
            self.slack.note_move(peak_bytes, bytes_of(&moved));
        }
        Ok(laid)
    }

    /// How much memory to create where `missing_bytes` are needed and `room_bytes` of addresses are
    /// bare: some is for the next requests, which would otherwise cost driver calls each.
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

    /// How much more the device may hold, for a request of `more_bytes`, before memory is moved.
    fn slack_bytes(&self, device: DeviceHeap<'_>, more_bytes: u64) -> u64 {
        let peak_bytes = device.peak_active_bytes(more_bytes);
        let slack_bytes = self.slack.bytes(peak_bytes, device.usable_bytes());
        (peak_bytes + slack_bytes).saturating_sub(device.ledger.reserved_bytes())
    }

    /// Maps the extents `moved` and `growth_bytes` of new ones side by side in the lane's
    /// addresses, right after the free block at `continued` if that is still possible. If any part
    /// fails, everything is as it was.
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
        // What comes from another stream is in order for this one: it waits for the donor's fence.
        let epoch_here = lane.lock().fence.epoch();
        let epoch =
            |extent: &Moved| if extent.lane == lane.index { extent.epoch } else { epoch_here };
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

    /// The largest that new extents should be. While hardly anything is freed they are large and
    /// stay whole. Once a program frees and allocates in turn, one live block keeps its extent from
    /// moving, so an extent should be a small part of what is held.
    fn extent_bytes(&self, device: DeviceHeap<'_>) -> u64 {
        let freed_bytes = device.freed_bytes();
        let is_growing = freed_bytes < device.ledger.reserved_bytes() / STEADY_PART;
        let bytes = if is_growing {
            GROWING_EXTENT_BYTES
        } else {
            (device.peak_active_bytes(0) / EXTENT_PART).max(EXTENT_BYTES)
        };
        bytes.min(self.coarsest_bytes(device))
    }

    /// The largest that a new extent may be, unless a granule is larger: by the room that the
    /// device has, and the policy.
    fn coarsest_bytes(&self, device: DeviceHeap<'_>) -> u64 {
        match self.policy {
            ElasticPolicy::Balanced => {
                device.usable_bytes().saturating_sub(device.ledger.reserved_bytes()) / ROOM_PART
            }
            ElasticPolicy::Tight => SMALL_GROWTH_BYTES,
        }
    }

    /// Creates extents of `bytes` in total and appends them to `created`.
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
            // Not piece by piece, only to be given back.
            return Err(Refusal::Limit);
        }
        let class = SizeClass::of(block_bytes);
        let message = format_args!("device {}: {bytes} bytes more", device.ordinal);
        device.heap.log.write(LogLevel::Debug, &message);
        let granule = self.store.granule_bytes();
        let extent_bytes = if block_bytes < self.single_handle_bytes {
            self.extent_bytes(device).max(granule)
        } else {
            bytes
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

    /// Maps extents side by side in the lane's addresses, as free blocks.
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
                    // Shadows only take addresses: without them there may be enough.
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
                    // Another thread was faster: memory is short for now.
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

    /// Checks the extents of a device against the lanes whose blocks lie in them; returns the
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
            // A smaller gap may do, perhaps once unused areas are gone.
            self.release_bare_areas(climb.device);
            reserved = self.store.reserve(bytes).map(|address| (address, bytes));
        }
        let (address, bytes) = reserved.map_err(Refusal::AddressSpace)?;
        climb.lane.lock().add_area(Segment { address, bytes, class });
        Ok(())
    }
}

/// A shortage of addresses, which no memory given back ends.
#[cold]
fn no_addresses(device: DeviceHeap<'_>, block_bytes: u64, error: DriverError) -> Error {
    let status = if error.is_out_of_memory() { Status::OutOfMemory } else { Status::DriverFailed };
    let ordinal = device.ordinal;
    let bytes = Bytes(block_bytes);
    Error::new(status, format!("device {ordinal}: no address space for {bytes}: {error}"))
}
