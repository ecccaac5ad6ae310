//! The free extents of a restless lane, laid side by side once more.
//!
//! A restless program (`heap::moves`) has moved memory from its first cycle on. So the lane's extents have
//! their origins in short runs, with views of others between them. More memory hardly helps there: each
//! request that is larger than a run must be put together all the same. So at the next trough all that is
//! free gets new origins, as if it had just been made.

use super::super::state::{Climb, Extents};
use super::gather::{Found, FreeExtent};
use crate::base::size::SizeClass;

impl Extents {
    /// Maps the lane's own free extents for large blocks side by side if that is due, and makes this
    /// their origins. If the driver refuses, all stay where they are.
    pub(super) fn lay_anew_if_due(&self, climb: &Climb<'_>) {
        if !climb.lane.lock().moves.take_new_layout() {
            return;
        }
        let search = self.store.extents().searches.begin();
        let mut found = Found { search, free: Vec::new() };
        self.find_free_in(climb.lane, climb, &mut found);
        {
            let extents = self.store.extents();
            let is_own = |free: &FreeExtent| {
                extents.get(free.id).is_some_and(|extent| {
                    let came_here = extent.origin.is_some_and(|(lane, _)| lane == free.lane);
                    came_here && extent.class == SizeClass::Large
                })
            };
            found.free.retain(is_own);
        }
        let mut moved = self.take(climb, found.free);
        moved.sort_unstable_by_key(|extent| extent.address);
        let block_bytes: u64 = moved.iter().map(|extent| extent.bytes).sum();
        // As if for one large block.
        let whole = Climb { block_bytes, ..*climb };
        if block_bytes > 0 && self.lay(&whole, &moved, &[], None).is_ok() {
            let mut extents = self.store.extents();
            moved.iter().for_each(|extent| extents.settle_here(extent.id));
        }
    }
}
