//! Requests that are served by a known window ([`KnownWindows`](super::super::windows)).
//!
//! If the window still needs no call of the driver, it is taken without listing the free extents and
//! without a search, which are more than half of what such a miss costs.

use std::sync::atomic::Ordering::Relaxed;

use super::super::lane::LaneState;
use super::super::state::{Climb, Extents};
use super::ablation::Part;
use super::gather::{Found, FreeExtent};
use super::window::{USUAL_PARTS, Window};
use crate::memory::{Block, ExtentTable, NO_SLOT, Slot, State};

/// A window that needs no call of the driver.
#[derive(Debug)]
struct KnownWindow {
    /// The address of its first shadow.
    shadow: u64,
    /// The extents to be brought back.
    recalled: Vec<FreeExtent>,
}

impl LaneState {
    /// The known window for a block of `bytes`, if all of it is free or can come back from homes in
    /// this lane, whose index is `lane`.
    fn known_window(&self, extents: &ExtentTable, lane: u32, bytes: u64) -> Option<KnownWindow> {
        let shadow = self.windows.find(bytes)?;
        let mut slot = self.blocks.slot_at(shadow)?;
        let before = self.blocks.get(slot).before;
        let is_free = |slot: Slot| self.blocks.get(slot).state == State::Free;
        if before != NO_SLOT && is_free(before) {
            slot = before;
        }
        let start = self.blocks.get(slot).address;
        let mut end = start;
        let mut recalled: Vec<FreeExtent> = Vec::with_capacity(USUAL_PARTS);
        let mut around = NO_SLOT;
        while end - start < bytes {
            let Block { address, bytes, state, links, after, .. } = *self.blocks.find_slot(slot)?;
            match state {
                State::Free => {}
                State::Shadow => {
                    let id = links[0];
                    let extent = extents.get(id)?;
                    let home = extent.home.filter(|home| home.lane == lane)?.address;
                    around = self.free_block_around(home, bytes, around)?;
                    let (slot, to) = (around, Some(address));
                    recalled.push(FreeExtent { id, bytes, lane, address: home, slot, to });
                }
                _ => return None,
            }
            (slot, end) = (after, address + bytes);
        }
        // No extent lies in the window already, or is in it twice.
        let mut ids: Vec<_> = recalled.iter().map(|extent| extent.id).collect();
        ids.sort_unstable();
        let is_once = ids.windows(2).all(|pair| pair[0] != pair[1])
            && recalled.iter().all(|extent| !(start..end).contains(&extent.address));
        is_once.then_some(KnownWindow { shadow, recalled })
    }
}

impl Extents {
    /// Serves the request with a known window, if there is one: brings its extents back. Returns
    /// true if it did.
    pub(super) fn recall_known(&self, climb: &Climb<'_>) -> bool {
        if climb.lane.pool().is_private() || self.is_short.load(Relaxed) || !Part::Recall.is_in() {
            return false;
        }
        let known = {
            let mut state = climb.lane.lock();
            let extents = self.store.extents();
            let known = state.known_window(&extents, climb.lane.index, climb.block_bytes);
            known.inspect(|known| state.windows.pass(known.shadow))
        };
        let Some(KnownWindow { recalled, .. }) = known else { return false };
        self.recall(climb, recalled);
        true
    }

    /// Remembers the window that the search has found, if it needs only memory of the lane's own.
    pub(super) fn remember_window(&self, climb: &Climb<'_>, window: &Window, found: &Found) {
        let own = climb.lane.index;
        let mut state = climb.lane.lock();
        if window.bare_bytes > 0 {
            state.windows.forget();
        } else if let Some((_, shadow)) = window.shadows().next() {
            if window.shadows().all(|(index, _)| found.free[index].lane == own) {
                state.windows.found(climb.block_bytes, shadow);
            } else {
                state.windows.pass(shadow);
            }
        }
    }
}
