//! Requests that are served by a known window ([`KnownWindows`](super::super::windows)).
//!
//! If the window still needs no memory to be mapped, it is taken without listing the free extents and
//! without a search, which are more than half of what such a miss costs. If some of it comes from other
//! lanes, all siblings with free memory are asked whether their streams have anything to do: memory that
//! is not asked for in time is not ready when it is needed.

use std::sync::atomic::Ordering::Relaxed;

use super::super::lane::{Lane, LaneState};
use super::super::state::{Climb, Extents};
use super::super::windows::SureWindow;
use super::ablation::Part;
use super::area::Shadow;
use super::gather::{FreeExtent, least_bytes};
use super::window::{USUAL_PARTS, Window};
use crate::memory::{Block, ExtentStore, NO_SLOT, Slot, State, View};
use crate::order::Readiness;

/// A window in which nothing has to be mapped.
#[derive(Debug)]
struct KnownWindow {
    /// The address of its first shadow.
    shadow: u64,
    /// The extents to be brought back.
    recalled: Vec<FreeExtent>,
}

impl LaneState {
    /// The known window for a block of `bytes`, if just one is sure and free. This lane's index is `lane`.
    fn known_window(&self, store: &ExtentStore, lane: u32, bytes: u64) -> Option<KnownWindow> {
        let is_allowed = |window: &KnownWindow, sure: &SureWindow| {
            sure.may_be_of_others || window.recalled.iter().all(|extent| extent.lane == lane)
        };
        let mut free = self.windows.sure(bytes).filter_map(|sure| {
            self.free_window(store, lane, bytes, sure.shadow)
                .filter(|window| is_allowed(window, &sure))
        });
        free.next().filter(|_| free.next().is_none())
    }

    /// The window for a block of `bytes` that begins with `shadow`, if all of it that is not in other lanes
    /// is free. This lane's index is `lane`.
    fn free_window(
        &self,
        store: &ExtentStore,
        lane: u32,
        bytes: u64,
        shadow: u64,
    ) -> Option<KnownWindow> {
        let mut slot = self.blocks.slot_at(shadow)?;
        let before = self.blocks.get(slot).before;
        let is_free = |slot: Slot| self.blocks.get(slot).state == State::Free;
        if before != NO_SLOT && is_free(before) {
            slot = before;
        }
        let start = self.blocks.get(slot).address;
        let mut end = start;
        let mut recalled: Vec<FreeExtent> = Vec::with_capacity(USUAL_PARTS);
        while end - start < bytes {
            let Block { address, bytes, state, links, after, .. } = *self.blocks.find_slot(slot)?;
            match state {
                State::Free => {}
                State::Shadow => {
                    let (id, to) = (links[0], Some(Shadow { address, slot }));
                    // The table tells its home below.
                    recalled.push(FreeExtent { id, bytes, lane, address: 0, slot: NO_SLOT, to });
                }
                _ => return None,
            }
            (slot, end) = (after, address + bytes);
        }
        {
            // All lanes share the table, so it is let go before the rest.
            let extents = store.extents();
            let is_inside = |view: &&View| (start..end).contains(&view.address);
            for recalled in &mut recalled {
                let extent = extents.get(recalled.id)?;
                let home = extent.home?;
                // It lies in the window already, or is in it twice.
                if is_inside(&&home) || extent.shadows.iter().filter(is_inside).nth(1).is_some() {
                    return None;
                }
                (recalled.lane, recalled.address) = (home.lane, home.address);
            }
        }
        let free = self.free_blocks(least_bytes(&recalled));
        for extent in &mut recalled {
            if extent.lane == lane {
                extent.slot = free.around(extent.address, extent.bytes)?;
            }
        }
        Some(KnownWindow { shadow, recalled })
    }

    /// Returns true if `extents` are free in this lane, and ready for other streams. Finds their blocks.
    fn are_ready(&self, extents: &mut [FreeExtent]) -> bool {
        let free = self.free_blocks(least_bytes(extents));
        extents.iter_mut().all(|extent| {
            free.around(extent.address, extent.bytes).is_some_and(|slot| {
                extent.slot = slot;
                let epoch = self.blocks.get(slot).freed_epoch;
                self.fence.readiness(epoch) != Readiness::NotYet
            })
        })
    }
}

impl Extents {
    /// Serves the request with a known window, if there is one: brings its extents back. Returns
    /// true if it did.
    pub(super) fn recall_known(&self, climb: &Climb<'_>) -> bool {
        if climb.lane.pool().is_private() || self.is_short.load(Relaxed) || !Part::Recall.is_in() {
            return false;
        }
        let lane = climb.lane;
        let mut state = lane.lock();
        let known = state.known_window(&self.store, lane.index, climb.block_bytes);
        let Some(KnownWindow { shadow, mut recalled }) = known else { return false };
        if recalled.iter().all(|extent| extent.lane == lane.index) {
            state.windows.pass(shadow);
            self.move_within(climb, &mut state, &recalled);
            return true;
        }
        drop(state);
        if !self.siblings_have(climb, &mut recalled) {
            return false;
        }
        lane.lock().windows.pass(shadow);
        self.recall(climb, recalled);
        true
    }

    /// Returns true if those of `extents` that are not in the request's lane are free where they are, and
    /// the request may take them. Asks all siblings first, and sorts `extents` by lane.
    fn siblings_have(&self, climb: &Climb<'_>, extents: &mut [FreeExtent]) -> bool {
        let own = climb.lane.index;
        let may_lend = |lane: &Lane| climb.is_in_household(lane);
        let ask = |lane: &Lane| {
            if !(Part::IdleStreams.is_in() && climb.device.see_idle(lane)) {
                lane.want_fence(climb.number);
            }
        };
        if !self.visit_siblings(climb, may_lend, ask) {
            return false;
        }
        extents.sort_unstable_by_key(|extent| extent.lane);
        extents.chunk_by_mut(|one, other| one.lane == other.lane).all(|of_lane| {
            let lane = climb.device.heap.lanes.get(of_lane[0].lane);
            let lender = lane.filter(|lane| may_lend(lane));
            of_lane[0].lane == own || lender.is_some_and(|lane| lane.lock().are_ready(of_lane))
        })
    }

    /// Remembers the window that the search has found, if nothing has to be mapped in it; else forgets all.
    pub(super) fn remember_window(&self, climb: &Climb<'_>, window: &Window) {
        let (bytes, mut guard) = (climb.block_bytes, climb.lane.lock());
        let state = &mut *guard;
        if window.bare_bytes > 0 {
            state.windows.forget();
        } else if let Some((_, shadow)) = window.shadows().next() {
            let is_free = |known: &u64| {
                let is_other = *known != shadow;
                is_other
                    && state.free_window(&self.store, climb.lane.index, bytes, *known).is_some()
            };
            let passed_over: Vec<u64> = state.windows.known(bytes).filter(is_free).collect();
            state.windows.found(bytes, shadow, &passed_over);
        }
    }
}
