//! Elastic's memory: extents, mapped where they are needed.
//!
//! The problem: enough memory is free, but in pieces that are not side by side. The answer: map
//! extents that are wholly free side by side at other addresses. No byte is copied and the host
//! does not wait, because the work of a stream runs in order.
//!
//! A lane has one range of addresses for each size class. Large blocks go where they fit best
//! (`strategy::wilderness`). A request that nothing fits is served in these steps:
//!
//! 1. **Window** ([`window`]). Find the cheapest run of adjacent parts that is large enough: free
//!    blocks, remembered views of extents that are free elsewhere, and bare addresses. In a program
//!    that repeats itself it is mostly known ([`known`]), and not searched for.
//! 2. **Recall** ([`gather`]). The extents of its remembered views come back to them. This is
//!    bookkeeping only; if nothing of the window is bare, the request is served.
//! 3. **Gather** ([`gather`]). If the device holds its limit (the live peak and a slack of 2 %), wholly
//!    free extents from elsewhere are mapped into the bare parts: the lane's own, and other lanes'
//!    behind their fences. In a lane's first cycle little is moved, because nobody knows yet how much
//!    the program will need.
//! 4. **Grow** ([`growth`]). New extents fill the bare parts that are left.
//! 5. **Edges** ([`edges`]). If all of that is not enough, free edges of extents that are partly in use
//!    are mapped, too.
//!
//! The view that an extent has left stays mapped, as a *shadow*. If there are too many, the oldest are
//! unmapped ([`give_back`]).
//!
//! When a lane's live memory has fallen to its usual low, its extents return to their first homes
//! (`heap::trough`). So a program that repeats itself finds in each cycle what it found in the last
//! one, and needs no more driver calls. One that does not (`heap::moves`) gets more memory and a new
//! layout ([`anew`]), or is packed. One that fills the device gets finer extents ([`scarcity`]).
//!
//! *Siblings* are the other lanes of the device, except those of private pools. Memory of a private
//! pool is never moved, because a captured graph holds its addresses.
//!
//! No lock is held while the driver maps. Meanwhile the addresses are *claimed*: they hold no
//! block, and no other thread uses them. If a call fails, extents that moved return, and new ones
//! are released or rest until the next need. Then memory counts as short.

pub mod ablation;
mod addresses;
mod anew;
mod area;
mod edges;
mod gather;
mod give_back;
mod growth;
mod household;
mod known;
mod laying;
mod plan;
mod ready;
mod scarcity;
mod single;
mod window;

pub(super) use area::Books;
pub(super) use give_back::Kept;
pub use growth::extent_sizes;

use std::sync::Arc;

use super::choice::Choice;
use super::lane::LaneState;
use super::loading::Loading;
use super::state::{Climb, DeviceHeap, Extents, Pressure, Rung};
use crate::base::DeviceOrdinal;
use crate::base::lock::Lock;
use crate::base::size::SizeClass;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::config::Settings;
use crate::driver::{self, Device, HandleOptions};
use crate::memory::{ExtentId, ExtentStore, Loan, NO_SLOT, State};
use crate::observe::DeviceEvents;
use ablation::Part::{Gather, HighestForSmall, PassOver};
use area::Shadow;
use edges::Returning;
use gather::{Found, FreeExtent, Taken, choose, whole_blocks_of};
use growth::Growth;
use household::Reach;
use window::{Part, Walls, Wanted, Window};

/// Another thread may take what was mapped for a request; the request is tried so many times.
const MOST_TRIES: usize = 16;
/// Or it may take what was to be moved; the request looks for other memory so many times.
const MOST_OVERTAKEN: usize = 64;

/// What came of one try to get memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The lane has more free memory.
    More,
    /// Another thread has taken what was to be moved.
    Overtaken,
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
            is_finer: false,
            was_in_pieces: AtomicBool::new(false),
            is_scarce: AtomicBool::new(false),
            area_bytes: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            loading: Lock::new(Loading::default()),
        }))
    }

    pub(super) fn granule_bytes(&self) -> u64 {
        self.store.granule_bytes()
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
            // Not for what no device of this size could serve.
            if climb.block_bytes <= climb.device.usable_bytes() {
                self.is_short.store(true, Relaxed);
            }
            self.return_edges(climb.lane, Returning::Free);
            // Free extents that fit nowhere go back, and come again as finer ones.
            climb.device.release(Choice::LeastNeeded { bytes: climb.block_bytes });
            if let Some(address) = self.serve_from_extents(climb)? {
                return Ok(Some(address));
            }
            // Also what private pools have left: no lane may take it before it went back.
            climb.device.release(Choice::All);
        }
        self.serve_from_extents(climb)
    }

    /// Serves a request by a known window. Not while blocks of the lane are pending: one of them may be
    /// complete, and is better.
    pub(super) fn serve_as_known(&self, climb: &Climb<'_>) -> Option<u64> {
        if self.wants_one_extent(climb) || !climb.lane.lock().pending.is_empty() {
            return None;
        }
        self.recall_known(climb).then(|| climb.take_from_lane(&mut climb.lane.lock()))?
    }

    /// Returns true if the request is for an extent of its own.
    fn wants_one_extent(&self, climb: &Climb<'_>) -> bool {
        climb.is_alone || climb.block_bytes >= self.single_handle_bytes
    }

    /// Serves a request from extents, new or moved.
    fn serve_from_extents(&self, climb: &Climb<'_>) -> Rung {
        if self.wants_one_extent(climb) {
            return self.serve_with_one_extent(climb);
        }
        let (mut tries, mut overtaken) = (0, 0);
        while tries < MOST_TRIES && overtaken < MOST_OVERTAKEN {
            if let Some(address) = climb.serve_from_lane() {
                return Ok(Some(address));
            }
            // Another thread may be faster each time; the search looks further.
            if (tries, overtaken) == (0, 0) && self.recall_known(climb) {
                tries += 1;
                continue;
            }
            match self.extend(climb)? {
                Outcome::More => tries += 1,
                Outcome::Overtaken => overtaken += 1,
                Outcome::Short => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Brings the lane more free memory: steps 1 to 5.
    fn extend(&self, climb: &Climb<'_>) -> crate::base::Result<Outcome> {
        if climb.block_bytes > climb.device.usable_bytes() {
            climb.make_pool_room(climb.block_bytes)?;
            return Ok(Outcome::Short);
        }
        self.extend_within(climb, self.reach(climb))
    }

    fn extend_within(&self, climb: &Climb<'_>, reach: Reach) -> crate::base::Result<Outcome> {
        if reach == Reach::Device && climb.wait_before_growing() {
            return Ok(Outcome::More);
        }
        let found = self.find_free(climb, reach);
        let growth = self.growth(climb, reach);
        let Some(window) = self.choose_window(climb, &found, &growth) else {
            return self.extend_addresses(climb);
        };
        if reach != Reach::Device && window.bare_bytes > growth.usable_bytes {
            // The device has no room for what is missing: strangers' memory comes before a shortage.
            let free_bytes = self.bytes_outside(climb, &window, &found);
            if window.bare_bytes > free_bytes.saturating_add(growth.usable_bytes) {
                return self.extend_within(climb, Reach::Device);
            }
        }
        self.remember_window(climb, &window);
        let to_recall = |(index, address)| {
            let to = Some(Shadow { address, slot: NO_SLOT });
            FreeExtent { to, ..found.free[index] }
        };
        let recalled: Vec<FreeExtent> = window.shadows().map(to_recall).collect();
        if !recalled.is_empty() {
            self.recall(climb, recalled);
        }
        if window.bare_bytes == 0 {
            // Or another thread has just freed what is needed.
            return Ok(Outcome::More);
        }
        self.note_spare(climb.device, climb.lane, || {
            let free_bytes = self.bytes_outside(climb, &window, &found);
            free_bytes.saturating_add(growth.usable_bytes).saturating_sub(window.bare_bytes)
        });
        if climb.make_pool_room(window.bare_bytes)? {
            return Ok(Outcome::More);
        }
        climb.device.make_room(window.bare_bytes);
        let filled = match self.fill(climb, &window, &found, &growth)? {
            Outcome::Short => self.lay_from_all(climb)?,
            filled => filled,
        };
        self.drop_excess_shadows(climb);
        Ok(filled)
    }

    /// The cheapest window. It passes over views whose extents are in use only if more than the
    /// limit would otherwise be held. Where memory is packed, it does whenever something must be created.
    fn choose_window(&self, climb: &Climb<'_>, found: &Found, growth: &Growth) -> Option<Window> {
        let find = |state: &LaneState, walls: Walls<'_>| {
            state.find_window(&Wanted {
                class: SizeClass::of(climb.block_bytes),
                bytes: climb.block_bytes,
                granule_bytes: self.store.granule_bytes(),
                found,
                walls,
            })
        };
        let window = find(&climb.lane.lock(), Walls::BusyViews)?;
        let created_bytes = |window: &Window| match window.bare_bytes {
            0 => 0,
            bare_bytes => bare_bytes.saturating_sub(self.bytes_outside(climb, window, found)),
        };
        let least_bytes = created_bytes(&window);
        let (room_bytes, gain_bytes) =
            if growth.is_packing { (0, 0) } else { (growth.room_bytes, 1) };
        if least_bytes <= room_bytes {
            return Some(window);
        }
        if !climb.lane.pool().is_private() {
            climb.keep_fence();
        }
        if !PassOver.is_in() {
            return Some(window);
        }
        let other = find(&climb.lane.lock(), Walls::ViewsInUse(&self.store.extents()));
        let is_better = |other: &Window| {
            created_bytes(other) + gain_bytes <= least_bytes && self.clear(climb, other)
        };
        other.filter(is_better).or(Some(window))
    }

    /// The found extents that can be mapped into the window: those that are not in it.
    fn outside<'a>(
        &self,
        climb: &Climb<'_>,
        window: &'a Window,
        found: &'a Found,
    ) -> impl Iterator<Item = &'a FreeExtent> {
        let own = climb.lane.index;
        let recalled: Vec<ExtentId> =
            window.shadows().map(|(index, _)| found.free[index].id).collect();
        found.usable_for(SizeClass::of(climb.block_bytes)).filter(move |extent| {
            let is_inside = extent.lane == own && window.contains(extent.address);
            !is_inside && !recalled.contains(&extent.id)
        })
    }

    /// The sum of [`Self::outside`], in bytes.
    fn bytes_outside(&self, climb: &Climb<'_>, window: &Window, found: &Found) -> u64 {
        self.outside(climb, window, found).map(|extent| extent.bytes).sum()
    }

    /// Fills the bare parts of the window.
    fn fill(
        &self,
        climb: &Climb<'_>,
        window: &Window,
        found: &Found,
        growth: &Growth,
    ) -> crate::base::Result<Outcome> {
        let mut candidates: Vec<FreeExtent> = Vec::new();
        if window.bare_bytes > growth.room_bytes && Gather.is_in() {
            candidates.extend(self.outside(climb, window, found));
            if growth.early_room_bytes > growth.room_bytes {
                let whole = whole_blocks_of(climb, &candidates);
                let whole_bytes: u64 = whole.iter().map(|extent| extent.bytes).sum();
                if window.bare_bytes <= whole_bytes.saturating_add(growth.early_room_bytes) {
                    candidates = whole;
                }
            }
            // Small blocks take those that large blocks need least often, which lie highest: in the
            // next cycle they are probably free again, and come back without a call. Without cycles
            // memory is packed toward the lowest addresses.
            let is_small = SizeClass::of(climb.block_bytes) == SizeClass::Small;
            let is_highest = is_small && HighestForSmall.is_in() || growth.is_packing;
            let order = |address: u64| if is_highest { u64::MAX - address } else { address };
            candidates.sort_unstable_by_key(|extent| (extent.bytes, order(extent.address)));
        }
        let free_bytes: u64 = candidates.iter().map(|extent| extent.bytes).sum();
        if window.bare_bytes > free_bytes.saturating_add(growth.usable_bytes) {
            return Ok(Outcome::Short);
        }
        for (part, room_bytes) in window.bare_parts() {
            let chosen = choose(&mut candidates, part.bytes, room_bytes);
            let filled = self.fill_part(climb, (part, room_bytes), chosen, growth.reach)?;
            if filled != Outcome::More {
                return Ok(filled);
            }
        }
        Ok(Outcome::More)
    }

    /// Fills a bare part, for which there are `room_bytes` of addresses, with `chosen` extents and
    /// new ones. If others have taken some of `chosen`, more than the limit is not held for that.
    fn fill_part(
        &self,
        climb: &Climb<'_>,
        (part, room_bytes): (Part, u64),
        chosen: Vec<FreeExtent>,
        reach: Reach,
    ) -> crate::base::Result<Outcome> {
        let Taken { moved, lost_bytes } = self.take(climb, chosen);
        let moved_bytes: u64 = moved.iter().map(|extent| extent.bytes).sum();
        let growth = self.growth(climb, reach);
        let created = match part.bytes.saturating_sub(moved_bytes) {
            0 => 0,
            missing_bytes => growth.bytes(missing_bytes, room_bytes - moved_bytes),
        };
        if lost_bytes > 0 && created > growth.room_bytes {
            self.bring_back(climb.device, &moved);
            return Ok(Outcome::Overtaken);
        }
        climb.lane.lock().moves.note(moved_bytes);
        let sizes: Vec<u64> = growth.extents(created).collect();
        self.lay(climb, &moved, &sizes, Some(part.address))
    }

    /// Unmaps the views in the bare parts of the window; returns true if none is left.
    fn clear(&self, climb: &Climb<'_>, window: &Window) -> bool {
        window.bare_parts().all(|(part, _)| {
            let end = part.address + part.bytes;
            let views = climb.lane.lock().shadows_in(&self.store.extents(), part.address..end);
            views.into_iter().all(|(id, view)| {
                self.try_unmap_shadow(climb.device, id, view, |extent| extent.home.is_some())
                    .is_ok()
            })
        })
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
                let lent = extent.lending.loan().map(|loan| loan.edge);
                let is_at_home = lane_of(home.lane)
                    .is_some_and(|lane| lane.lock().has_blocks(home.address, extent, lent));
                if !is_at_home {
                    return Err(named(format!("extent {id} has no blocks at {:#x}", home.address)));
                }
            }
            if let Some(&Loan { view, edge, .. }) = extent.lending.loan() {
                let rest = Some(edge.rest(extent.bytes));
                let is_lent = lane_of(view.lane)
                    .is_some_and(|lane| lane.lock().has_blocks(view.address, extent, rest));
                if !is_lent {
                    return Err(named(format!("no edge of extent {id} at {:#x}", view.address)));
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
}
