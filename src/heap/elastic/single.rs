//! Requests that get an extent (one handle of the driver) to themselves.
//!
//! Memory made of several handles, or of part of one, cannot be registered with some versions of
//! NCCL or with RDMA devices, and memory that a block shares with others cannot be paused with it
//! alone. So a request of at least `GENESIS_SINGLE_HANDLE_SIZE`, or one for a block alone, gets one
//! whole extent: a free one that is at most an eighth larger, or a new one. It is always a miss.

use super::super::state::{Climb, Extents, Rung};
use super::gather::Taken;
use super::household::Reach;
use super::{MOST_TRIES, Outcome};
use crate::memory::{ExtentId, Slot};

/// An extent may be larger than the request by at most 1/WASTE_PART of the request.
const WASTE_PART: u64 = 8;

impl Extents {
    pub(super) fn serve_with_one_extent(&self, climb: &Climb<'_>) -> Rung {
        let extent_bytes = climb.block_bytes.next_multiple_of(self.store.granule_bytes());
        let is_common = climb.device.pools.communication(climb.lane.pool()).is_none();
        if !is_common && !climb.lane.lock().pending.is_empty() {
            climb.device.wait_for_device();
        }
        for _ in 0..MOST_TRIES {
            if let Some(address) = self.take_whole_extent(climb, extent_bytes) {
                return Ok(Some(address));
            }
            if is_common && climb.wait_before_growing() {
                continue;
            }
            let Taken { moved, lost_bytes } = self.take_elsewhere(climb, extent_bytes);
            if lost_bytes > 0 {
                continue;
            }
            let created: &[u64] = if moved.is_empty() { &[extent_bytes] } else { &[] };
            if climb.make_pool_room(created.iter().sum())? {
                continue;
            }
            climb.device.make_room(created.iter().sum());
            if self.lay(climb, &moved, created, None)? == Outcome::Short {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Takes the smallest free extent that is large enough from another lane, or from the lane's
    /// addresses for small blocks.
    fn take_elsewhere(&self, climb: &Climb<'_>, least_bytes: u64) -> Taken {
        let found = self.find_free(climb, Reach::Device);
        let most_bytes = least_bytes + least_bytes / WASTE_PART;
        let fitting =
            found.free.iter().filter(|extent| (least_bytes..=most_bytes).contains(&extent.bytes));
        let chosen = fitting.min_by_key(|extent| extent.bytes);
        self.take(climb, chosen.copied().into_iter().collect())
    }

    /// Hands out the smallest free extent of the lane that is large enough, as one block.
    fn take_whole_extent(&self, climb: &Climb<'_>, least_bytes: u64) -> Option<u64> {
        let lane = climb.lane;
        let mut guard = lane.lock();
        let state = &mut *guard;
        let most_bytes = least_bytes + least_bytes / WASTE_PART;
        let mut best: Option<(u64, u64, Slot)> = None;
        {
            let extents = self.store.extents();
            let bytes_of = |id: ExtentId| extents.get(id).map_or(0, |extent| extent.bytes);
            state.visit_free_extents(&extents, self.store.granule_bytes(), |slot, address, id| {
                let bytes = bytes_of(id);
                let fits = (least_bytes..=most_bytes).contains(&bytes);
                if fits
                    && best
                        .is_none_or(|(smallest, lowest, _)| (bytes, address) < (smallest, lowest))
                {
                    best = Some((bytes, address, slot));
                }
            });
        }
        let (bytes, address, slot) = best?;
        let taken = state.take_out(slot, address, bytes);
        Some(lane.hand_out(state, taken, climb.requested_bytes))
    }
}
