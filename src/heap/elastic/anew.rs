//! The free extents of a restless lane, laid side by side once more.
//!
//! A restless program (`heap::moves`) has moved memory from its first cycle on. So the lane's extents have
//! their origins in short runs, with views of others between them. More memory hardly helps there: each
//! request that is larger than a run must be put together all the same. So at the next trough all that is
//! free gets new origins, as if it had just been made.

use super::super::state::{Climb, Extents};
use super::Outcome;
use super::gather::FreeExtent;
use crate::base::size::SizeClass;

/// So many extents are under way at a time: other threads of the lane find the rest of its memory.
const UNDER_WAY: usize = 16;

impl Extents {
    /// Maps the lane's own free extents for large blocks side by side if that is due, and makes this
    /// their origins. Where the driver refuses, the rest stay where they are. While a stream may be captured,
    /// a later trough is waited for. Returns true if it is due.
    pub(super) fn lay_anew_if_due(&self, climb: &Climb<'_>) -> bool {
        let is_due = climb.lane.lock().moves.need_new_layout();
        if is_due {
            self.lay_anew(climb);
        }
        is_due
    }

    fn lay_anew(&self, climb: &Climb<'_>) {
        // What follows asks the driver for more than bookkeeping, and may wait: not in a capture.
        climb.look_for_capture();
        if climb.device.may_capture() || !climb.lane.lock().moves.take_new_layout() {
            return;
        }
        let free = self.own_free_extents(climb);
        let block_bytes = free.iter().map(|extent| extent.bytes).sum();
        if block_bytes == 0 {
            return;
        }
        // As if for one large block.
        let whole = Climb { block_bytes, ..*climb };
        let Some(mut address) = self.place_for(&whole) else { return };
        for part in free.chunks(UNDER_WAY) {
            let mut moved = self.take(&whole, part.to_vec()).moved;
            moved.sort_unstable_by_key(|extent| extent.address);
            if moved.is_empty() {
                continue;
            }
            if !matches!(self.lay(&whole, &moved, &[], Some(address)), Ok(Outcome::More)) {
                return;
            }
            let mut extents = self.store.extents();
            for extent in moved {
                extents.make_home_origin(extent.id);
                address += extent.bytes;
            }
        }
    }

    /// The lane's wholly free extents for large blocks that came into being there, by address.
    fn own_free_extents(&self, climb: &Climb<'_>) -> Vec<FreeExtent> {
        let mut found = self.found_nothing();
        self.find_free_in(climb.lane, climb, &mut found);
        let extents = self.store.extents();
        found.free.retain(|free| {
            extents.get(free.id).is_some_and(|extent| {
                let came_here = extent.origin.is_some_and(|(lane, _)| lane == free.lane);
                came_here && extent.class == SizeClass::Large
            })
        });
        found.free.sort_unstable_by_key(|free| free.address);
        found.free
    }

    /// Where there are as many bare addresses side by side as the block of `climb` has bytes.
    fn place_for(&self, climb: &Climb<'_>) -> Option<u64> {
        let find = || climb.lane.lock().bare_place(SizeClass::Large, climb.block_bytes);
        let place = find().or_else(|| {
            self.make_bare_addresses(climb, climb.block_bytes).ok()?;
            find()
        });
        place.map(|(_, address)| address)
    }
}
