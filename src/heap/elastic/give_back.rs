//! ExtentTable and addresses back to the driver.
//!
//! An extent whose bytes are all free goes back when every view of it can be unmapped: when
//! the work that was queued on the lane of each view, until blocks last lay there, is known
//! to be complete. Nothing here waits; callers that may wait do so before.

use super::super::choice::Choice;
use super::super::lane::NO_REQUEST;
use super::super::release::Candidate;
use super::super::state::{Climb, DeviceHeap, Extents};
use super::area::Leaving;
use crate::base::lock::assert_none_held;
use crate::memory::{Extent, ExtentId, ExtentTable, State, View};
use crate::order::Readiness;

/// Shadows are remembered up to this many times the memory that is held …
const MOST_SHADOW_SHARE: u64 = 16;
/// … and up to this many views for each extent.
const MOST_VIEWS_PER_EXTENT: usize = 4;
/// So many views more are kept in any case.
const LEAST_VIEWS: usize = 64;

/// So many shadows in use are passed over in one search for those that can go.
const MOST_PASSED_OVER: usize = 64;

/// What has been waited for before memory is released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    No,
    ForDevice,
}

/// Why a shadow was not unmapped.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Kept {
    /// Work may still use it, or another thread is unmapping it.
    InUse,
    /// The driver refused.
    Driver(crate::driver::DriverError),
}

impl Extents {
    /// Releases what `choice` says, first what no wait is needed for. Memory that was a private
    /// pool's may be in use by a graph on any stream, which no lane's fence tells: that, and what
    /// a fence does not tell to be idle, goes after a wait for the device.
    pub(in super::super) fn release(&self, device: DeviceHeap<'_>, choice: Choice) -> u64 {
        let mut released_bytes = self.release_idle(device, choice, Waited::No);
        let choice = choice.less(released_bytes);
        if !self.candidates(device, choice).is_empty() && device.wait_for_device() {
            released_bytes += self.release_idle(device, choice, Waited::ForDevice);
        }
        released_bytes
    }

    fn release_idle(&self, device: DeviceHeap<'_>, choice: Choice, waited: Waited) -> u64 {
        let mut released_bytes = self.release_resting(device);
        for candidate in self.candidates(device, choice) {
            if choice.is_met(released_bytes) {
                break;
            }
            if candidate.is_common || waited == Waited::ForDevice {
                released_bytes += self.release_extent(device, &candidate);
            }
        }
        self.release_bare_areas(device);
        released_bytes
    }

    fn candidates(&self, device: DeviceHeap<'_>, choice: Choice) -> Vec<Candidate<ExtentId>> {
        device.candidates(choice, |state, add| {
            let extents = self.store.extents();
            state.visit_free_extents(&extents, self.store.granule_bytes(), |slot, address, id| {
                let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
                add(state.blocks.get(slot), address..address + bytes, id);
            });
        })
    }

    /// Gives the candidate back if its bytes are all free and nothing may still use them; returns
    /// how many bytes went back.
    fn release_extent(&self, device: DeviceHeap<'_>, candidate: &Candidate<ExtentId>) -> u64 {
        let Candidate { address, piece: id, .. } = *candidate;
        let Some(lane) = device.heap.lanes.get(candidate.lane) else { return 0 };
        let (bytes, epoch) = {
            let mut state = lane.lock();
            let mut extents = self.store.extents();
            let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
            let home = extents.get(id).and_then(|extent| extent.home);
            let is_home =
                home.is_some_and(|home| (home.lane, home.address) == (lane.index, address));
            let around = state
                .free_block_around(address, bytes)
                .filter(|&slot| is_home && state.fence.is_idle(state.blocks.get(slot).freed_epoch));
            let Some(slot) = around else { return 0 };
            (bytes, lane.detach(&mut state, &mut extents, Leaving { id, address, slot }))
        };
        if self.unmap_all(device, id) && self.destroy(device, id) {
            return bytes;
        }
        // What has a view to return to is as it was; the rest waits for the next need.
        let mut state = lane.lock();
        let mut books = self.books(device);
        if let Some(slot) = state.shadow_of(&books.table, id, address) {
            lane.adopt(&mut state, &mut books, id, slot, epoch);
        } else if books.table.get(id).is_some() && !books.table.resting().contains(&id) {
            books.table.rest(id);
        }
        0
    }

    /// Gives the extents at rest back to the driver.
    fn release_resting(&self, device: DeviceHeap<'_>) -> u64 {
        let resting: Vec<ExtentId> = self.store.extents().resting().to_vec();
        let mut released_bytes = 0;
        for id in resting {
            let bytes = {
                let mut extents = self.store.extents();
                if !extents.wake(id) {
                    continue;
                }
                extents.get(id).map_or(0, |extent| extent.bytes)
            };
            if !self.unmap_all(device, id) {
                self.store.extents().rest(id);
            } else if self.destroy(device, id) {
                released_bytes += bytes;
            }
        }
        released_bytes
    }

    /// Gives the areas of all lanes back in which nothing is mapped.
    pub(super) fn release_bare_areas(&self, device: DeviceHeap<'_>) {
        for lane in device.lanes() {
            let bare = lane.lock().remove_bare_areas();
            for area in bare {
                if self.store.unreserve(area.address, area.bytes).is_err() {
                    lane.lock().add_area(area);
                }
            }
        }
    }

    /// Unmaps the oldest shadows while there are too many, as far as they are out of use. Those of
    /// a stream that gives no event any more would stay for ever: where there are twice too many,
    /// the device is waited for.
    pub(super) fn drop_excess_shadows(&self, climb: &Climb<'_>) {
        let held_bytes = climb.device.ledger.reserved_bytes();
        let is_excess = |extents: &ExtentTable, times: u64| {
            let most_views = MOST_VIEWS_PER_EXTENT * extents.count() + LEAST_VIEWS;
            extents.shadow_bytes() > times * MOST_SHADOW_SHARE * held_bytes
                || extents.view_count() > times as usize * most_views
        };
        self.drop_shadows_while(climb, |extents| is_excess(extents, 1));
        let is_far_too_much = is_excess(&self.store.extents(), 2);
        if is_far_too_much && climb.device.wait_for_device() {
            self.drop_shadows_while(climb, |extents| is_excess(extents, 1));
        }
    }

    /// Unmaps shadows, the oldest first, while `is_wanted` and as far as they are out of use. Those
    /// that are not are passed over, and looked at last the next time.
    pub(super) fn drop_shadows_while(
        &self,
        climb: &Climb<'_>,
        is_wanted: impl Fn(&ExtentTable) -> bool,
    ) {
        let mut in_use = Vec::new();
        while in_use.len() < MOST_PASSED_OVER {
            let oldest = {
                let mut extents = self.store.extents();
                match is_wanted(&extents) && !climb.device.may_capture() {
                    true => extents.pop_oldest_shadow(),
                    false => None,
                }
            };
            let Some((id, view)) = oldest else { break };
            if !self.drop_shadow(climb.device, id, view) {
                in_use.push((id, view));
            }
        }
        let mut extents = self.store.extents();
        in_use.into_iter().for_each(|(id, view)| extents.put_back_shadow(id, view));
    }

    /// Unmaps a shadow if the work queued through it is complete; says whether it did. If not, its
    /// stream is to give an event for the next time, unless there is one to wait for.
    fn drop_shadow(&self, device: DeviceHeap<'_>, id: ExtentId, view: View) -> bool {
        let Some(lane) = device.heap.lanes.get(view.lane) else { return false };
        {
            let mut state = lane.lock();
            if !state.fence.is_idle(view.left_epoch) {
                state.poll_fence(&device.contexts);
            }
        }
        // A view that an extent on its way has just left may be what it has to return to.
        let is_gone = self.unmap_shadow(device, id, view, |extent| extent.home.is_some());
        if !is_gone && lane.lock().fence.readiness(view.left_epoch) == Readiness::NotYet {
            lane.want_fence(NO_REQUEST);
        }
        is_gone
    }

    /// Unmaps every view of an extent that is at home nowhere; says whether all are gone.
    fn unmap_all(&self, device: DeviceHeap<'_>, id: ExtentId) -> bool {
        let views = self.store.extents().get(id).map(|extent| extent.shadows.clone());
        let views = views.unwrap_or_default();
        let is_idle = |view: &View| {
            device
                .heap
                .lanes
                .get(view.lane)
                .is_some_and(|lane| lane.lock().fence.is_idle(view.left_epoch))
        };
        views.iter().all(is_idle)
            && views.iter().all(|view| self.unmap_shadow(device, id, *view, |_| true))
            // Another thread may be about one of them.
            && !self.store.extents().has_views(id)
    }

    /// Unmaps a shadow of an extent of which `may_go` holds, if the work queued through it is
    /// known to be complete.
    fn unmap_shadow(
        &self,
        device: DeviceHeap<'_>,
        id: ExtentId,
        view: View,
        may_go: impl Fn(&Extent) -> bool,
    ) -> bool {
        self.try_unmap_shadow(device, id, view, may_go).is_ok()
    }

    /// The same, but it says why not.
    pub(in super::super) fn try_unmap_shadow(
        &self,
        device: DeviceHeap<'_>,
        id: ExtentId,
        view: View,
        may_go: impl Fn(&Extent) -> bool,
    ) -> Result<(), Kept> {
        let lane = device.heap.lanes.get(view.lane).ok_or(Kept::InUse)?;
        let claimed = {
            let mut state = lane.lock();
            let may_go = {
                let extents = self.store.extents();
                // It may have been a home again meanwhile, or be another extent's shadow.
                let is_as_seen = |extent: &&Extent| extent.shadows.contains(&view);
                extents.get(id).filter(is_as_seen).is_some_and(&may_go)
            };
            if !may_go || !state.fence.is_idle(view.left_epoch) {
                return Err(Kept::InUse);
            }
            let slot = state.block_at(view.address, State::Shadow);
            slot.inspect(|&slot| state.blocks.turn(slot, State::Claimed))
        };
        let slot = claimed.ok_or(Kept::InUse)?;
        assert_none_held();
        let unmapped = device.outside_captures(|| self.store.unmap(id, view.address));
        let mut state = lane.lock();
        match unmapped {
            Ok(()) => state.make_bare(slot),
            Err(_) => state.blocks.turn(slot, State::Shadow),
        }
        unmapped.map_err(Kept::Driver)
    }

    /// Gives up an extent that was never at home; if the driver keeps a view of it, it rests.
    pub(in super::super) fn discard(&self, device: DeviceHeap<'_>, id: ExtentId) {
        if self.unmap_all(device, id) {
            self.destroy(device, id);
        } else {
            self.store.extents().rest(id);
        }
    }

    /// Releases an extent that has no view; returns true if the driver took it.
    pub(in super::super) fn destroy(&self, device: DeviceHeap<'_>, id: ExtentId) -> bool {
        let destroyed = self.store.destroy(&device.ledger, id);
        destroyed.inspect_err(|&error| device.log_kept_memory(error)).is_ok()
    }
}
