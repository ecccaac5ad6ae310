//! Finds free extents for a request, so that the device need not hold more.
//!
//! First a remembered *stretch* is tried: addresses of the lane side by side, each free or a
//! *shadow* (a view of an extent whose *home*, where its blocks lie, is elsewhere and free). By
//! bookkeeping alone they become one free block. Else free extents leave their homes to be mapped
//! side by side: the lane's own, then other lanes' (`Climb::is_sibling`) behind their fences.

use super::super::lane::{Lane, LaneState};
use super::super::state::{Climb, DeviceHeap, Extents};
use super::area::Leaving;
use crate::base::size::SizeClass;
use crate::memory::{Block, ExtentId, ExtentTable, NO_SLOT, Slot, State};
use crate::observe::Tallies;
use crate::order::Readiness;

/// Small blocks do not take extents larger than this, in bytes: a single small block could keep
/// the whole extent from other uses for long.
const LARGEST_FOR_SMALL_BYTES: u64 = 32 << 20;

/// An extent without a home that is about to be mapped elsewhere, and the home it left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    pub(super) lane: u32,
    pub(super) address: u64,
    /// The epoch of that lane (see `order::fence`) in which its bytes were freed.
    pub(super) epoch: u32,
}

/// A free extent that may be taken.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    bytes: u64,
    leaving: Leaving,
}

/// One block of a remembered stretch.
#[derive(Clone, Copy)]
struct Part {
    slot: Slot,
    address: u64,
    bytes: u64,
    /// If the part is a shadow: its extent, to be brought back.
    absent: Option<Leaving>,
}

impl Extents {
    /// Brings the lane's free extents back to their origins (first homes), side by side as they
    /// were created; returns true if any moved. So a program that repeats itself finds its
    /// memory each time as it was the time before.
    pub(super) fn return_to_origins(&self, climb: &Climb<'_>) -> bool {
        let lane = climb.lane;
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut books = self.books(climb.device);
        let mut away = Vec::new();
        state.visit_free_extents(&books.table, self.store.granule_bytes(), |slot, address, id| {
            let origin = books.table.get(id).and_then(|extent| extent.origin);
            // A shadow that another thread is unmapping can no longer be a home.
            if let Some((at, home)) = origin
                && at == lane.index
                && home != address
                && state.block_at(home, State::Shadow).is_some()
            {
                away.push(Leaving { id, address, slot });
            }
        });
        let epochs = lane.detach_all(state, &mut books.table, &mut away);
        for (returning, epoch) in away.iter().zip(epochs) {
            let origin = books.table.get(returning.id).and_then(|extent| extent.origin);
            let home = origin.map_or(returning.address, |(_, home)| home);
            if let Some(slot) = state.block_at(home, State::Shadow) {
                lane.adopt(state, &mut books, returning.id, slot, epoch);
            }
        }
        !away.is_empty()
    }

    /// Makes a free block for the request from a remembered stretch; returns true if there was one.
    pub(super) fn restore(&self, climb: &Climb<'_>) -> bool {
        let lane = climb.lane;
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut books = self.books(climb.device);
        let class = SizeClass::of(climb.block_bytes);
        let mut free = Vec::new();
        state.visit_free_extents(&books.table, self.store.granule_bytes(), |slot, _, id| {
            free.push((id, slot));
        });
        let search = books.table.new_search();
        for &(id, slot) in &free {
            books.table.mark(id, search, slot);
        }
        let stretch = Stretches { state, extents: &books.table, lane: lane.index, class, search }
            .with_fewest_absent(&free, climb.block_bytes);
        let mut leaving: Vec<Leaving> = stretch.iter().filter_map(|part| part.absent).collect();
        let epochs = lane.detach_all(state, &mut books.table, &mut leaving);
        for (extent, epoch) in leaving.iter().zip(epochs) {
            let is_of = |part: &&Part| part.absent.is_some_and(|absent| absent.id == extent.id);
            let Some(part) = stretch.iter().find(is_of) else { continue };
            lane.adopt(state, &mut books, extent.id, part.slot, epoch);
        }
        !stretch.is_empty()
    }

    /// Takes free extents from their homes: at least `wanted_bytes` in total, or all there are.
    /// Those in the lane's free block that starts at `spared` stay.
    pub(super) fn gather(
        &self,
        climb: &Climb<'_>,
        wanted_bytes: u64,
        spared: Option<u64>,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let mut missing_bytes = wanted_bytes;
        let mut take_from = |lane: &Lane| {
            let taken = self.gather_from(lane, climb, missing_bytes, spared);
            let taken_bytes: u64 = taken.iter().map(|extent| extent.bytes).sum();
            missing_bytes = missing_bytes.saturating_sub(taken_bytes);
            if !taken.is_empty() && lane.index != climb.lane.index {
                Tallies::count(&climb.device.tallies.cross_stream_reuses);
            }
            moved.extend(taken);
            missing_bytes > 0
        };
        // While a stream may be capturing no event may be queried, so only the lane's own memory
        // moves.
        if take_from(climb.lane) && !climb.device.pools.is_routing() {
            let siblings = climb.device.lanes();
            for sibling in siblings.filter(|sibling| climb.is_sibling(sibling)) {
                if sibling.counters.inactive_bytes() >= self.store.granule_bytes()
                    && !take_from(sibling)
                {
                    break;
                }
            }
        }
        moved
    }

    fn gather_from(
        &self,
        lane: &Lane,
        climb: &Climb<'_>,
        wanted_bytes: u64,
        spared: Option<u64>,
    ) -> Vec<Moved> {
        let is_own = lane.index == climb.lane.index;
        let largest_bytes = match SizeClass::of(climb.block_bytes) {
            SizeClass::Small => LARGEST_FOR_SMALL_BYTES,
            SizeClass::Large => u64::MAX,
        };
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut candidates = Vec::new();
        let (mut fence, mut unfenced) = (None, false);
        {
            let extents = self.store.extents();
            state.visit_free_extents(&extents, self.store.granule_bytes(), |slot, address, id| {
                let block = state.blocks.get(slot);
                let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
                if Some(block.address) == spared && is_own || bytes > largest_bytes {
                    return;
                }
                match state.fence.readiness(block.freed_epoch) {
                    Readiness::NotYet if !is_own => return unfenced = true,
                    Readiness::After(event) if !is_own => fence = Some(event),
                    _ => {}
                }
                candidates.push(Candidate { bytes, leaving: Leaving { id, address, slot } });
            });
        }
        if unfenced {
            lane.want_fence(climb.number);
        }
        let mut leaving: Vec<Leaving> =
            choose(candidates, wanted_bytes).into_iter().map(|chosen| chosen.leaving).collect();
        if leaving.is_empty() {
            return Vec::new();
        }
        let moved: Vec<Moved> = {
            let mut extents = self.store.extents();
            let epochs = lane.detach_all(state, &mut extents, &mut leaving);
            let moved = |(&Leaving { id, address, .. }, epoch): (&Leaving, u32)| {
                let bytes = extents.get(id)?.bytes;
                Some(Moved { id, bytes, lane: lane.index, address, epoch })
            };
            leaving.iter().zip(epochs).filter_map(moved).collect()
        };
        // No lane has them until the wait is queued, so none can use them before it.
        if let Some(event) = fence
            && climb.order_after(lane, guard, event).is_err()
        {
            self.bring_back(climb.device, &moved);
            return Vec::new();
        }
        moved
    }

    /// Brings extents that could not be used elsewhere back to their former homes.
    pub(super) fn bring_back(&self, device: DeviceHeap<'_>, moved: &[Moved]) {
        for extent in moved {
            let Some(lane) = device.heap.lanes.get(extent.lane) else { continue };
            let mut state = lane.lock();
            let mut books = self.books(device);
            if let Some(slot) = state.shadow_of(&books.table, extent.id, extent.address) {
                lane.adopt(&mut state, &mut books, extent.id, slot, extent.epoch);
            }
        }
    }
}

/// Chooses few candidates that total `wanted_bytes`, or all. Each step takes the smallest that
/// covers what is still missing, or else the largest.
fn choose(mut candidates: Vec<Candidate>, wanted_bytes: u64) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| candidate.bytes);
    let mut chosen = Vec::new();
    let mut missing_bytes = wanted_bytes;
    while missing_bytes > 0 && !candidates.is_empty() {
        let enough = candidates.partition_point(|candidate| candidate.bytes < missing_bytes);
        let taken = candidates.remove(enough.min(candidates.len() - 1));
        missing_bytes = missing_bytes.saturating_sub(taken.bytes);
        chosen.push(taken);
    }
    chosen
}

/// A search for remembered stretches of one lane.
struct Stretches<'a> {
    state: &'a LaneState,
    extents: &'a ExtentTable,
    lane: u32,
    class: SizeClass,
    /// Extents marked with this number are free.
    search: u64,
}

impl Stretches<'_> {
    /// The stretch of at least `block_bytes` that takes the fewest extents from their homes;
    /// empty if there is none. Searches around each shadow of the `free` extents.
    fn with_fewest_absent(&self, free: &[(ExtentId, Slot)], block_bytes: u64) -> Vec<Part> {
        let shadows = free.iter().filter_map(|&(id, _)| self.extents.get(id));
        let mut addresses: Vec<u64> = shadows
            .flat_map(|extent| &extent.shadows)
            .filter(|view| view.lane == self.lane && view.is_remembered())
            .map(|view| view.address)
            .collect();
        addresses.sort_unstable();
        let (mut best, mut fewest) = (Vec::new(), usize::MAX);
        let mut seen_until = 0;
        for address in addresses {
            if address < seen_until {
                continue;
            }
            let whole = self.whole_stretch(address);
            let Some(last) = whole.last() else { continue };
            seen_until = last.address + last.bytes;
            if let Some((window, absent)) = fewest_absent(&whole, block_bytes)
                && absent < fewest
            {
                (best, fewest) = (window.to_vec(), absent);
            }
        }
        best
    }

    /// The longest stretch around the shadow at `address`.
    fn whole_stretch(&self, address: u64) -> Vec<Part> {
        let blocks = &self.state.blocks;
        let Some(mut slot) = blocks.slot_at(address) else {
            return Vec::new();
        };
        if self.part(slot).is_none() || blocks.get(slot).class != self.class {
            return Vec::new();
        }
        while let before = blocks.get(slot).before
            && before != NO_SLOT
            && self.part(before).is_some()
        {
            slot = before;
        }
        let mut parts = Vec::new();
        while slot != NO_SLOT
            && let Some(part) = self.part(slot)
        {
            parts.push(part);
            slot = blocks.get(slot).after;
        }
        parts
    }

    /// The block in `slot` as a part of a stretch, or `None` if it cannot be one.
    fn part(&self, slot: Slot) -> Option<Part> {
        let Block { address, bytes, state, .. } = *self.state.blocks.get(slot);
        let absent = match state {
            State::Free => None,
            State::Shadow => {
                let id = self.extents.at(address)?;
                let extent = self.extents.get(id).filter(|found| found.found.0 == self.search)?;
                let mut remembered = extent.shadows.iter().filter(|view| view.is_remembered());
                let home = extent.home.filter(|_| remembered.any(|v| v.address == address))?;
                Some(Leaving { id, address: home.address, slot: extent.found.1 })
            }
            _ => return None,
        };
        Some(Part { slot, address, bytes, absent })
    }
}

/// The window of at least `block_bytes` with the fewest extents to bring back, and their number.
fn fewest_absent(parts: &[Part], block_bytes: u64) -> Option<(&[Part], usize)> {
    let mut best: Option<(&[Part], usize)> = None;
    let (mut first, mut bytes, mut absent) = (0, 0, 0);
    for (last, part) in parts.iter().enumerate() {
        bytes += part.bytes;
        absent += usize::from(part.absent.is_some());
        while bytes - parts[first].bytes >= block_bytes {
            bytes -= parts[first].bytes;
            absent -= usize::from(parts[first].absent.is_some());
            first += 1;
        }
        let window = &parts[first..=last];
        let is_better = best.is_none_or(|(_, fewest)| absent < fewest);
        if bytes >= block_bytes && is_better && homes_are_elsewhere(window, bytes) {
            best = Some((window, absent));
        }
    }
    best
}

/// Returns true if no extent of the window has its home in the window, and none is in it twice.
fn homes_are_elsewhere(window: &[Part], window_bytes: u64) -> bool {
    let Some(start) = window.first().map(|part| part.address) else {
        return false;
    };
    let absent = || window.iter().filter_map(|part| part.absent);
    let mut ids: Vec<ExtentId> = absent().map(|extent| extent.id).collect();
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1])
        && absent().all(|extent| !(start..start + window_bytes).contains(&extent.address))
}
