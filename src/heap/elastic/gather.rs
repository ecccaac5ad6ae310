//! Free extents for a request that would otherwise make the device hold more.
//!
//! First what is remembered: a stretch of the lane's own addresses, free or shadow, where every
//! shadow's extent is free at its home. It becomes whole again by bookkeeping alone. Else free
//! extents leave their places, of the lane itself first, then of the other lanes of the same
//! pool behind their fences, to be mapped side by side.

use super::super::Heap;
use super::super::ladder::Request;
use super::super::lane::{Lane, LaneState};
use crate::base::size::SizeClass;
use crate::memory::{Block, ExtentId, Extents, NO_SLOT, Pages, Slot, State};
use crate::observe::Tallies;
use crate::order::Readiness;

/// Small blocks do not take extents larger than this, in bytes: one of them could keep it from
/// everybody for long.
const LARGEST_FOR_SMALL_BYTES: u64 = 32 << 20;

/// An extent on its way, with the place that it left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    pub(super) lane: u32,
    pub(super) address: u64,
    /// The epoch of that lane in which its bytes were freed.
    pub(super) epoch: u32,
}

/// A free extent that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    id: ExtentId,
    bytes: u64,
    address: u64,
}

/// A part of an area on the way to a remembered stretch.
#[derive(Clone, Copy)]
struct Part {
    slot: Slot,
    address: u64,
    bytes: u64,
    /// The extent to bring home, where the part is a shadow.
    absent: Option<(ExtentId, u64)>,
}

impl Heap {
    /// Makes a free block for the request out of a remembered stretch, if there is one.
    pub(super) fn restore(&self, request: &Request<'_>, pages: &Pages) -> bool {
        let lane = request.lane;
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut extents = pages.extents();
        let class = SizeClass::of(request.block_bytes);
        let search = extents.new_search();
        let mut free = Vec::new();
        state.visit_free_extents(&extents, pages.granule_bytes(), |_, _, id| free.push(id));
        for id in free {
            extents.mark(id, search);
        }
        let Some(stretch) = remembered_stretch(state, &extents, class, request.block_bytes, search)
        else {
            return false;
        };
        for part in stretch {
            if let Some((id, home)) = part.absent
                && let Some(epoch) = lane.detach(state, &mut extents, id, home)
            {
                if let Some(before) = extents.set_class(id, class) {
                    request.device.supply.reclassify(part.bytes, before, class);
                }
                lane.adopt(state, &mut extents, id, part.slot, epoch);
            }
        }
        true
    }

    /// Takes free extents from where they are, at least `wanted_bytes` together if there are
    /// so many. Those in the free block that starts at `spared` stay.
    pub(super) fn gather(
        &self,
        request: &Request<'_>,
        pages: &Pages,
        wanted_bytes: u64,
        spared: Option<u64>,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let mut missing_bytes = wanted_bytes;
        let mut take_from = |lane: &Lane| {
            let taken = self.gather_from(lane, request, pages, missing_bytes, spared);
            let taken_bytes: u64 = taken.iter().map(|extent| extent.bytes).sum();
            missing_bytes = missing_bytes.saturating_sub(taken_bytes);
            if !taken.is_empty() && lane.index != request.lane.index {
                Tallies::count(&request.device.tallies.cross_stream_reuses);
            }
            moved.extend(taken);
            missing_bytes > 0
        };
        // While a stream may be capturing no event may be asked about, so only the lane's own
        // memory moves.
        if take_from(request.lane) && !request.device.pools.is_routing() {
            let siblings = self.lanes.of(request.device.ordinal);
            for sibling in siblings.filter(|sibling| request.is_sibling(sibling)) {
                if sibling.counters.inactive_bytes() >= pages.granule_bytes() && !take_from(sibling)
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
        request: &Request<'_>,
        pages: &Pages,
        wanted_bytes: u64,
        spared: Option<u64>,
    ) -> Vec<Moved> {
        let is_own = lane.index == request.lane.index;
        let largest_bytes = match SizeClass::of(request.block_bytes) {
            SizeClass::Small => LARGEST_FOR_SMALL_BYTES,
            SizeClass::Large => u64::MAX,
        };
        let mut guard = lane.lock();
        let state = &mut *guard;
        let mut candidates = Vec::new();
        let (mut fence, mut unfenced) = (None, false);
        {
            let extents = pages.extents();
            state.visit_free_extents(&extents, pages.granule_bytes(), |block, address, id| {
                let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
                if Some(block.address) == spared && is_own || bytes > largest_bytes {
                    return;
                }
                match state.fence.readiness(block.freed_epoch) {
                    Readiness::NotYet if !is_own => unfenced = true,
                    Readiness::After(event) if !is_own => {
                        fence = Some(event);
                        candidates.push(Candidate { id, bytes, address });
                    }
                    _ => candidates.push(Candidate { id, bytes, address }),
                }
            });
        }
        if unfenced {
            lane.want_fence();
        }
        // The donor's lock is held so that the event stays what it is.
        if candidates.is_empty()
            || fence.is_some_and(|event| self.order_after(request, event).is_err())
        {
            return Vec::new();
        }
        let mut extents = pages.extents();
        let detach = |Candidate { id, bytes, address }| {
            let epoch = lane.detach(state, &mut extents, id, address)?;
            Some(Moved { id, bytes, lane: lane.index, address, epoch })
        };
        choose(candidates, wanted_bytes).into_iter().filter_map(detach).collect()
    }

    /// Brings extents that could not be used elsewhere back to where they were.
    pub(super) fn bring_back(&self, pages: &Pages, moved: &[Moved]) {
        for extent in moved {
            let Some(lane) = self.lanes.get(extent.lane) else { continue };
            let mut state = lane.lock();
            if let Some(slot) = state.block_at(extent.address, State::Shadow) {
                lane.adopt(&mut state, &mut pages.extents(), extent.id, slot, extent.epoch);
            }
        }
    }
}

/// Of the candidates few that are `wanted_bytes` together, or all: again and again the
/// smallest that is enough, or the largest.
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

/// The stretch of at least `block_bytes` that takes the fewest extents from their homes.
fn remembered_stretch(
    state: &LaneState,
    extents: &Extents,
    class: SizeClass,
    block_bytes: u64,
    search: u64,
) -> Option<Vec<Part>> {
    let mut best: Option<Vec<Part>> = None;
    let heads = state.blocks.iter().filter(|(_, block)| block.before == NO_SLOT);
    for (head, _) in heads.filter(|(_, block)| block.class == class) {
        let mut window = std::collections::VecDeque::new();
        let (mut window_bytes, mut absent) = (0, 0);
        let mut slot = head;
        while slot != NO_SLOT {
            let block = state.blocks.get(slot);
            let Some(part) = part_of(slot, block, extents, search) else {
                window.clear();
                (window_bytes, absent) = (0, 0);
                slot = block.after;
                continue;
            };
            window_bytes += part.bytes;
            absent += usize::from(part.absent.is_some());
            window.push_back(part);
            while let Some(&Part { bytes, absent: first, .. }) = window.front()
                && window_bytes - bytes >= block_bytes
            {
                window_bytes -= bytes;
                absent -= usize::from(first.is_some());
                window.pop_front();
            }
            let fewer = best.as_ref().is_none_or(|best| {
                absent < best.iter().filter(|part| part.absent.is_some()).count()
            });
            if window_bytes >= block_bytes && fewer && homes_are_elsewhere(&window, window_bytes) {
                best = Some(window.iter().copied().collect());
            }
            slot = block.after;
        }
    }
    best
}

fn part_of(slot: Slot, block: &Block, extents: &Extents, search: u64) -> Option<Part> {
    let Block { address, bytes, .. } = *block;
    match block.state {
        State::Free => Some(Part { slot, address, bytes, absent: None }),
        State::Shadow => {
            let id = extents.at(address)?;
            let extent = extents.get(id).filter(|extent| extent.found_by == search)?;
            let is_remembered =
                extent.shadows.iter().any(|view| view.address == address && view.is_remembered());
            let home = extent.home.filter(|_| is_remembered)?;
            Some(Part { slot, address, bytes, absent: Some((id, home.address)) })
        }
        _ => None,
    }
}

/// Whether no extent of the stretch is at home in the stretch itself, and none is in it twice.
fn homes_are_elsewhere(window: &std::collections::VecDeque<Part>, window_bytes: u64) -> bool {
    let Some(start) = window.front().map(|part| part.address) else {
        return false;
    };
    let absent = || window.iter().filter_map(|part| part.absent);
    let mut ids: Vec<ExtentId> = absent().map(|(id, _)| id).collect();
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1])
        && absent().all(|(_, home)| !(start..start + window_bytes).contains(&home))
}
