//! Wholly free extents: which there are, how they leave their homes for another place, and how
//! they return to former ones.
//!
//! Extents of other lanes (`Climb::is_sibling`) are taken behind their lane's fence: until the wait
//! is queued they are in no lane, so none can use them before it.

use super::super::lane::{Lane, LaneState};
use super::super::state::{Climb, DeviceHeap, Extents, NO_STREAM};
use super::ablation::Part;
use super::area::{Coming, Leaving, Shadow};
use super::household::Reach;
use crate::base::size::{MIB, SizeClass};
use crate::memory::{ExtentId, NO_SLOT, Slot, State};
use crate::observe::Tallies;
use crate::order::Readiness;

/// Small blocks take no extent of more bytes: a single small block could keep the whole extent from
/// other uses for long.
const LARGEST_FOR_SMALL_BYTES: u64 = 8 * MIB;

/// Mostly no more extents are astray from a lane.
const USUAL_STRAYS: usize = 32;

/// The epoch of memory that no stream has used.
const NEVER: u32 = 0;

/// An extent whose bytes are all free, as it was when its lane was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeExtent {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    /// Its home.
    pub(super) lane: u32,
    pub(super) address: u64,
    /// The free block around it then, if it is known.
    pub(super) slot: Slot,
    /// The view that is to be its home, if it is to be recalled.
    pub(super) to: Option<Shadow>,
}

/// The bytes of the smallest.
pub(super) fn least_bytes(extents: &[FreeExtent]) -> u64 {
    extents.iter().map(|extent| extent.bytes).min().unwrap_or(0)
}

/// The wholly free extents that a request may take, none of them twice.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) free: Vec<FreeExtent>,
    /// By id: 0, or the extent's place in the list, counted from 1.
    places: Vec<u32>,
}

/// An extent without a home that is about to be mapped elsewhere, and the home it left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    pub(super) lane: u32,
    pub(super) address: u64,
    /// The epoch of that lane (see `order::fence`) in which its bytes were freed.
    pub(super) epoch: u32,
    /// The view that is to be its home, if it is to be recalled.
    to: Option<Shadow>,
}

/// What came of taking extents from their homes.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) moved: Vec<Moved>,
    /// What of the chosen extents other threads have taken meanwhile, in bytes.
    pub(super) lost_bytes: u64,
}

impl Extents {
    /// Lists the wholly free extents that the request may take: the lane's own, and those
    /// of siblings within `reach` that have nothing to do, or that a fence covers. Others are asked for
    /// one. What other streams have done with of the siblings' blocks becomes free before. None in a
    /// private pool, whose memory never moves.
    pub(super) fn find_free(&self, climb: &Climb<'_>, reach: Reach) -> Found {
        if climb.lane.pool().is_private() {
            return Found::default();
        }
        self.return_edges_of_all(climb.device);
        let mut found = self.found_nothing();
        self.find_free_in(climb.lane, climb, &mut found);
        let may_lend = |lane: &Lane| reach.includes(climb, lane);
        self.visit_siblings(climb, may_lend, |lane| self.find_free_in(lane, climb, &mut found));
        found
    }

    /// What a search begins with: nothing, and room for all extents.
    pub(super) fn found_nothing(&self) -> Found {
        let extents = self.store.extents();
        let (count, end) = (extents.count(), extents.end_id() as usize);
        Found { free: Vec::with_capacity(count), places: vec![0; end] }
    }

    /// Calls `visit` with each lane that `may_lend` memory and has some free; what other streams have done
    /// with of its blocks becomes free before. Returns false, without a call, while a stream may be
    /// capturing: no event may be queried then.
    pub(super) fn visit_siblings(
        &self,
        climb: &Climb<'_>,
        may_lend: impl Fn(&Lane) -> bool,
        mut visit: impl FnMut(&Lane),
    ) -> bool {
        if climb.device.pools.is_routing() {
            return false;
        }
        for lane in climb.device.lanes().filter(|lane| may_lend(lane)) {
            drop(climb.device.poll_blocks(lane));
            if lane.counters.inactive_bytes() >= self.store.granule_bytes() {
                visit(lane);
            }
        }
        true
    }

    /// [`Self::find_free`] in one lane.
    pub(super) fn find_free_in(&self, lane: &Lane, climb: &Climb<'_>, found: &mut Found) {
        let mut is_all = self.add_ready(lane, climb, found);
        if !is_all && Part::IdleStreams.is_in() && climb.device.see_idle(lane) {
            is_all = self.add_ready(lane, climb, found);
        }
        if !is_all {
            lane.want_fence(climb.number);
        }
    }

    /// Adds to `found` what the request may take of `lane` and is not yet in there. Returns true if
    /// nothing else of the lane is free.
    fn add_ready(&self, lane: &Lane, climb: &Climb<'_>, found: &mut Found) -> bool {
        let is_own = lane.index == climb.lane.index;
        let mut is_all = true;
        let state = lane.lock();
        let extents = self.store.extents();
        state.visit_free_extents(&extents, self.store.granule_bytes(), |slot, address, id| {
            let epoch = state.blocks.get(slot).freed_epoch;
            if !is_own && state.fence.readiness(epoch) == Readiness::NotYet {
                is_all = false;
                return;
            }
            let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
            let lane = lane.index;
            found.add(FreeExtent { id, bytes, lane, address, slot, to: None });
        });
        is_all
    }

    /// Takes `chosen` from their homes; those that are no longer free are left out.
    pub(super) fn take(&self, climb: &Climb<'_>, mut chosen: Vec<FreeExtent>) -> Taken {
        let mut taken = Taken { moved: Vec::with_capacity(chosen.len()), lost_bytes: 0 };
        chosen.sort_unstable_by_key(|extent| extent.lane);
        for of_lane in chosen.chunk_by(|one, other| one.lane == other.lane) {
            if let Some(lane) = climb.device.heap.lanes.get(of_lane[0].lane) {
                self.take_from(lane, climb, of_lane, &mut taken);
            }
        }
        taken
    }

    /// [`Self::take`] from `lane`: adds to `taken`.
    fn take_from(&self, lane: &Lane, climb: &Climb<'_>, chosen: &[FreeExtent], taken: &mut Taken) {
        let is_own = lane.index == climb.lane.index;
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut leaving = Vec::with_capacity(chosen.len());
        leaving.extend(chosen.iter().filter_map(|extent| {
            let FreeExtent { id, bytes, address, slot, to, .. } = *extent;
            let slot = state.free_block_around(address, bytes, slot)?;
            let epoch = state.blocks.get(slot).freed_epoch;
            match state.fence.readiness(epoch) {
                Readiness::NotYet if !is_own => None,
                Readiness::After(_) if !is_own && climb.number == NO_STREAM => None,
                _ => Some(Leaving { id, bytes, address, slot, epoch, to }),
            }
        }));
        let extents = self.store.extents();
        leaving.retain(|leaving| {
            // Meanwhile its number may be another extent's.
            let extent = extents.get(leaving.id).filter(|extent| extent.bytes == leaving.bytes);
            let home = extent.and_then(|extent| extent.home);
            home.is_some_and(|home| (home.lane, home.address) == (lane.index, leaving.address))
        });
        let wanted_bytes: u64 = chosen.iter().map(|extent| extent.bytes).sum();
        let left_bytes: u64 = leaving.iter().map(|extent| extent.bytes).sum();
        taken.lost_bytes += wanted_bytes - left_bytes;
        lane.detach(state, extents, &mut leaving);
        let moved = &mut taken.moved;
        let first = moved.len();
        moved.extend(leaving.iter().map(|leaving| {
            let Leaving { id, bytes, address, epoch, to, .. } = *leaving;
            Moved { id, bytes, lane: lane.index, address, epoch, to }
        }));
        let fence =
            moved[first..].iter().find_map(|extent| match state.fence.readiness(extent.epoch) {
                Readiness::After(event) if !is_own => Some(event),
                _ => None,
            });
        if let Some(event) = fence
            && climb.order_after(lane, guard, event).is_err()
        {
            self.bring_back(climb.device, &moved[first..]);
            moved.truncate(first);
        }
        if !is_own && moved[first..].iter().any(|extent| extent.epoch != NEVER) {
            Tallies::count(&climb.device.tallies.cross_stream_reuses);
        }
    }

    /// Brings extents that could not be used elsewhere back to their former homes.
    pub(super) fn bring_back(&self, device: DeviceHeap<'_>, moved: &[Moved]) {
        for extent in moved {
            let Some(lane) = device.heap.lanes.get(extent.lane) else { continue };
            let mut state = lane.lock();
            let books = self.books(device);
            let Moved { id, address, epoch, .. } = *extent;
            if let Some(slot) = state.shadow_of(&books.table, id, address) {
                lane.adopt(&mut state, books, &mut [Coming { id, address, slot, epoch }]);
            }
        }
    }

    /// Makes remembered views of the lane homes again: each extent of `wanted` at the address that it
    /// goes to, if it is still free.
    pub(super) fn recall(&self, climb: &Climb<'_>, mut wanted: Vec<FreeExtent>) {
        let lane = climb.lane;
        let is_own = |extent: &FreeExtent| extent.lane == lane.index;
        if wanted.iter().any(is_own) {
            self.recall_own(climb, &wanted);
            wanted.retain(|extent| !is_own(extent));
        }
        if wanted.is_empty() {
            return;
        }
        let moved = self.take(climb, wanted).moved;
        let mut coming = Vec::with_capacity(moved.len());
        let mut lost = Vec::new();
        {
            let mut state = lane.lock();
            let now = state.fence.epoch();
            let books = self.books(climb.device);
            for extent in &moved {
                let shadow = |Shadow { address, .. }| {
                    Some((address, state.shadow_of(&books.table, extent.id, address)?))
                };
                let Some((address, slot)) = extent.to.and_then(shadow) else {
                    // Meanwhile the view was unmapped.
                    lost.push(*extent);
                    continue;
                };
                let epoch = self.epoch_here(lane.index, now, extent);
                coming.push(Coming { id: extent.id, address, slot, epoch });
            }
            lane.adopt(&mut state, books, &mut coming);
        }
        self.bring_back(climb.device, &lost);
    }

    /// [`Self::recall`] of those that are in the lane itself, under one lock.
    fn recall_own(&self, climb: &Climb<'_>, wanted: &[FreeExtent]) {
        let lane = climb.lane;
        let mut state = lane.lock();
        let mut own = wanted.to_vec();
        {
            // All lanes share the table, so it is let go before free blocks are looked up.
            let extents = self.store.extents();
            own.retain(|wanted| {
                extents.get(wanted.id).is_some_and(|extent| {
                    let home = extent.home.map(|home| (home.lane, home.address));
                    extent.bytes == wanted.bytes && home == Some((lane.index, wanted.address))
                })
            });
        }
        own.retain_mut(|FreeExtent { address, bytes, slot, to, .. }| {
            let around = state.free_block_around(*address, *bytes, *slot);
            let shadow = to.and_then(|to| state.block_at(to.address, State::Shadow));
            let (Some(around), Some(to), Some(shadow)) = (around, to, shadow) else { return false };
            (*slot, to.slot) = (around, shadow);
            true
        });
        self.move_within(climb, &mut state, &own);
    }

    /// Moves extents of the request's lane to other views in it. All are free there, and the slots of
    /// blocks and shadows are up to date: the lock has been held since they were looked up.
    pub(super) fn move_within(
        &self,
        climb: &Climb<'_>,
        state: &mut LaneState,
        wanted: &[FreeExtent],
    ) {
        let mut books = self.books(climb.device);
        let mut leaving = Vec::with_capacity(wanted.len());
        let mut coming = Vec::with_capacity(wanted.len());
        // A known window lists them by address; the last is put in first.
        for &FreeExtent { id, bytes, address, slot, to, .. } in wanted.iter().rev() {
            let Some(Shadow { address: to, slot: shadow }) = to else { continue };
            let epoch = state.blocks.get(slot).freed_epoch;
            let class = state.blocks.get(shadow).class;
            // Meanwhile the view may be another extent's.
            let Some(before) = books.table.change_home(id, to, class, epoch) else { continue };
            books.ledger.reclassify(bytes, before, class);
            leaving.push(Leaving { id, bytes, address, slot, epoch, to: None });
            coming.push(Coming { id, address: to, slot: shadow, epoch });
        }
        drop(books);
        if !coming.is_empty() {
            climb.lane.cut_out(state, &mut leaving);
            climb.lane.put_in(state, &mut coming);
        }
    }

    /// Returns true if extents of the lane may be elsewhere than at their origins (first homes), and
    /// may return.
    pub(in super::super) fn may_have_strays(&self, lane: &Lane) -> bool {
        self.store.may_have_strays(lane.index)
            && !lane.pool().is_private()
            && Part::ReturnHome.is_in()
    }

    /// The lane's live memory is at its usual low: its extents come home, after what is too coarse has gone
    /// back and before they are laid anew, if either is due. Returns true if that may have waited for the
    /// device.
    pub(in super::super) fn come_home(&self, climb: &Climb<'_>) -> bool {
        let is_cut = self.cut_anew_if_due(climb);
        self.return_to_origins(climb);
        self.lay_anew_if_due(climb) || is_cut
    }

    /// Brings the lane's extents back to their origins, side by side as they were created, from the
    /// lane's own addresses and from other lanes'. Lanes that have none of them are not looked at.
    fn return_to_origins(&self, climb: &Climb<'_>) {
        let mut strays = self.strays(climb.lane.index);
        for of_lane in strays.chunk_by_mut(|one, other| one.lane == other.lane) {
            if let Some(lane) = climb.device.heap.lanes.get(of_lane[0].lane) {
                self.find_free_strays(lane, climb, of_lane);
            }
        }
        strays.retain(|stray| stray.slot != NO_SLOT);
        if !strays.is_empty() {
            self.recall(climb, strays);
        }
    }

    /// The extents astray from `lane`, to go to their origins, by the lane that they are in.
    fn strays(&self, lane: u32) -> Vec<FreeExtent> {
        let mut strays = Vec::with_capacity(USUAL_STRAYS);
        strays.extend(self.store.extents().strays(lane).filter_map(|(id, extent)| {
            let (home, (_, origin)) = (extent.home?, extent.origin?);
            let to = Some(Shadow { address: origin, slot: NO_SLOT });
            let (bytes, address) = (extent.bytes, home.address);
            Some(FreeExtent { id, bytes, lane: home.lane, address, slot: NO_SLOT, to })
        }));
        strays.sort_by_key(|stray| stray.lane);
        strays
    }

    /// Finds the blocks of those of `strays`, all in `lane`, that are wholly free and that the request may
    /// take.
    fn find_free_strays(&self, lane: &Lane, climb: &Climb<'_>, strays: &mut [FreeExtent]) {
        let least_bytes = least_bytes(strays);
        let is_own = lane.index == climb.lane.index;
        // While a stream may be capturing no event may be queried.
        let may_take = is_own || climb.is_sibling(lane) && !climb.device.pools.is_routing();
        if !may_take || lane.counters.inactive_bytes() < least_bytes {
            return;
        }
        let mut is_unfenced = false;
        let state = lane.lock();
        let free = state.free_blocks(least_bytes);
        for stray in strays {
            let Some(slot) = free.around(stray.address, stray.bytes) else { continue };
            let epoch = state.blocks.get(slot).freed_epoch;
            if !is_own && state.fence.readiness(epoch) == Readiness::NotYet {
                is_unfenced = true;
            } else {
                stray.slot = slot;
            }
        }
        drop(state);
        if is_unfenced {
            lane.want_fence(climb.number);
        }
    }

    /// The epoch in which the bytes of `extent` count as freed in `lane`, whose epoch is `now`.
    /// What comes from another stream is in order for this one: it waits for the donor's fence. What
    /// no stream has used stays so.
    pub(super) fn epoch_here(&self, lane: u32, now: u32, extent: &Moved) -> u32 {
        if extent.lane == lane || extent.epoch == NEVER { extent.epoch } else { now }
    }
}

impl Found {
    /// Adds an extent, unless it is in there: a lane may be looked at twice, and an extent may have moved
    /// on since another lane was.
    fn add(&mut self, free: FreeExtent) {
        let id = free.id as usize;
        if self.places.len() <= id {
            self.places.resize(id + 1, 0);
        }
        if self.places[id] == 0 {
            self.free.push(free);
            self.places[id] = self.free.len() as u32;
        }
    }

    /// The index of the extent `id` in the list.
    #[inline]
    pub(super) fn index_of(&self, id: ExtentId) -> Option<usize> {
        (*self.places.get(id as usize)? as usize).checked_sub(1)
    }

    /// Those that a block of `class` may take.
    pub(super) fn usable_for(&self, class: SizeClass) -> impl Iterator<Item = &FreeExtent> {
        let largest_bytes = match class {
            SizeClass::Small => LARGEST_FOR_SMALL_BYTES,
            SizeClass::Large => u64::MAX,
        };
        self.free.iter().filter(move |extent| extent.bytes <= largest_bytes)
    }
}

/// Those of `extents` that make up whole free blocks: if they are taken, no rest of a block is left.
/// Extents of one block stand side by side in `extents`.
pub(super) fn whole_blocks_of(climb: &Climb<'_>, extents: &[FreeExtent]) -> Vec<FreeExtent> {
    let block_of = |extent: &FreeExtent| (extent.lane, extent.slot);
    let is_whole = |of_block: &&[FreeExtent]| {
        let FreeExtent { lane, address, bytes, slot, .. } = of_block[0];
        let block_bytes = climb.device.heap.lanes.get(lane).and_then(|lane| {
            let state = lane.lock();
            let slot = state.free_block_around(address, bytes, slot)?;
            Some(state.blocks.get(slot).bytes)
        });
        block_bytes == Some(of_block.iter().map(|extent| extent.bytes).sum())
    };
    let blocks = extents.chunk_by(|one, other| block_of(one) == block_of(other));
    blocks.filter(is_whole).flatten().copied().collect()
}

/// Chooses, and removes from `candidates`, few extents of `wanted_bytes` in total, or as much as
/// there is, and of at most `room_bytes`. Each step takes the smallest that covers what is still
/// missing, or else the largest. `candidates` are sorted by size.
pub(super) fn choose(
    candidates: &mut Vec<FreeExtent>,
    wanted_bytes: u64,
    room_bytes: u64,
) -> Vec<FreeExtent> {
    let (mut chosen, mut chosen_bytes) = (Vec::new(), 0);
    while chosen_bytes < wanted_bytes {
        let (missing_bytes, room_bytes) = (wanted_bytes - chosen_bytes, room_bytes - chosen_bytes);
        let enough = candidates.partition_point(|candidate| candidate.bytes < missing_bytes);
        let fitting = candidates.partition_point(|candidate| candidate.bytes <= room_bytes);
        let Some(largest) = fitting.checked_sub(1) else { break };
        let taken = candidates.remove(enough.min(largest));
        chosen_bytes += taken.bytes;
        chosen.push(taken);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_found_once() {
        let mut found = Found::default();
        let of =
            |id, address| FreeExtent { id, bytes: 1, lane: 0, address, slot: NO_SLOT, to: None };
        for extent in [of(1, 0), of(7, 1), of(1, 2), of(0, 3)] {
            found.add(extent);
        }
        let addresses: Vec<u64> = found.free.iter().map(|extent| extent.address).collect();
        assert_eq!(addresses, [0, 1, 3]);
        assert_eq!(
            [1, 7, 0, 2, 8].map(|id| found.index_of(id)),
            [Some(0), Some(1), Some(2), None, None]
        );
    }
}
