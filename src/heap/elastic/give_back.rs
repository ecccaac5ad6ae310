//! Returns extents and addresses to the driver.
//!
//! An extent (one handle) whose bytes are all free is released once every view (mapping) of it can
//! be unmapped: when the fence of the view's lane, an event after its frees, shows that all work
//! queued while blocks lay there is complete. Of these functions only `release` and
//! `drop_excess_shadows` wait.

use std::sync::atomic::Ordering::Relaxed;

use super::super::choice::Choice;
use super::super::lane::NO_REQUEST;
use super::super::release::Candidate;
use super::super::state::{Climb, DeviceHeap, Extents};
use super::area::{Coming, Leaving};
use crate::base::lock::assert_none_held;
use crate::base::size::{MIB, SizeClass};
use crate::memory::{Extent, ExtentId, ExtentTable, NO_SLOT, State, View};
use crate::order::Readiness;

/// Shadows (views that are not their extent's home) are kept up to this many for each extent; at twice as
/// many, the device is waited for.
const MOST_SHADOWS_PER_EXTENT: usize = 64;
/// But not more than so many, because each search for a window reads all of them, …
const MOST_SHADOWS: usize = 4096;
/// … or, if that is more, than so many for each extent: those that programs which repeat themselves come
/// back to.
const LEAST_SHADOWS_PER_EXTENT: usize = 3;
/// Shadows that small blocks have left are kept up to this many times the bytes of their extents,
/// because the directory takes 1.6 % of the addresses that small blocks were at, …
const SMALL_SHADOWS: u64 = 4;
/// … and up to at least so many bytes.
const LEAST_SMALL_SHADOW_BYTES: u64 = 128 * MIB;

/// One search for shadows to unmap skips at most this many through which work may be under way.
const MOST_PASSED_OVER: usize = 64;

/// Whether the device has been waited for before memory is released.
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
    /// Releases what `choice` selects: first what needs no wait, then, after a wait for the
    /// device, the rest. The rest is memory that no fence shows to be idle, and memory of a
    /// private pool, which a graph may use on any stream without a fence that shows it.
    pub(in super::super) fn release(&self, device: DeviceHeap<'_>, choice: Choice) -> u64 {
        self.return_edges_of_all(device);
        let mut released_bytes = self.release_idle(device, choice, Waited::No);
        let choice = choice.less(released_bytes);
        let is_left = || !self.candidates(device, choice).is_empty();
        if choice.may_wait() && is_left() && device.wait_for_device() {
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

    /// Releases the candidate if its bytes are all free and nothing may still use them; returns
    /// the bytes released.
    fn release_extent(&self, device: DeviceHeap<'_>, candidate: &Candidate<ExtentId>) -> u64 {
        let Candidate { address, piece: id, .. } = *candidate;
        let Some(lane) = device.heap.lanes.get(candidate.lane) else { return 0 };
        let (pool, bytes, epoch) = {
            let mut state = lane.lock();
            let extents = self.store.extents();
            let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
            let home = extents.get(id).and_then(|extent| extent.home);
            let is_home =
                home.is_some_and(|home| (home.lane, home.address) == (lane.index, address));
            let around = state
                .free_block_around(address, bytes, NO_SLOT)
                .filter(|&slot| is_home && state.fence.is_idle(state.blocks.get(slot).freed_epoch));
            let Some(slot) = around else { return 0 };
            let epoch = state.blocks.get(slot).freed_epoch;
            let leaving = Leaving { id, bytes, address, slot, epoch, to: None };
            lane.detach(&mut state, extents, &mut [leaving]);
            (lane.pool(), bytes, epoch)
        };
        if self.unmap_all(device, id) && self.destroy(device, id) {
            device.refund_pool(pool, bytes);
            return bytes;
        }
        // If its view is still there it is the home again; otherwise the extent rests.
        let mut state = lane.lock();
        let mut books = self.books(device);
        if let Some(slot) = state.shadow_of(&books.table, id, address) {
            lane.adopt(&mut state, books, &mut [Coming { id, address, slot, epoch }]);
        } else if books.table.get(id).is_some() && !books.table.resting().contains(&id) {
            books.table.rest(id);
        }
        0
    }

    /// Releases the resting extents: those kept without a home.
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

    /// Returns to the driver the areas of all lanes in which nothing is mapped.
    pub(super) fn release_bare_areas(&self, device: DeviceHeap<'_>) {
        for lane in device.lanes() {
            let bare = lane.lock().remove_bare_areas();
            for area in bare {
                if self.store.unreserve(area.address, area.bytes).is_err() {
                    lane.lock().add_area(area);
                } else {
                    self.area_bytes.fetch_sub(area.bytes, Relaxed);
                }
            }
        }
    }

    /// Unmaps the oldest shadows that are out of use, while there are too many. Those of a stream
    /// that records no more events would stay for ever, so at far too many this waits for the device.
    pub(super) fn drop_excess_shadows(&self, climb: &Climb<'_>) {
        for class in SizeClass::ALL {
            // How much there is, how much is kept, and above how much the device is waited for.
            let amounts = |extents: &ExtentTable| match class {
                SizeClass::Small => {
                    let held_bytes = climb.device.ledger.reserved(Some(class)).current;
                    let most_bytes = (SMALL_SHADOWS * held_bytes).max(LEAST_SMALL_SHADOW_BYTES);
                    [extents.left_bytes(class), most_bytes, 2 * most_bytes]
                }
                SizeClass::Large => {
                    let [least, most] = [LEAST_SHADOWS_PER_EXTENT, MOST_SHADOWS_PER_EXTENT]
                        .map(|of_each| of_each * extents.count());
                    let kept = MOST_SHADOWS.max(least).min(most);
                    [extents.shadow_count(), kept, 2 * most].map(|count| count as u64)
                }
            };
            let drop_excess = || {
                self.drop_shadows_while(climb, class, |extents| {
                    let [there_is, kept, _] = amounts(extents);
                    there_is > kept
                });
            };
            drop_excess();
            let [there_is, _, far_too_much] = amounts(&self.store.extents());
            if there_is > far_too_much && climb.device.wait_for_device() {
                drop_excess();
            }
        }
    }

    /// Unmaps all shadows that are out of use.
    pub(super) fn drop_all_shadows(&self, climb: &Climb<'_>) {
        for class in SizeClass::ALL {
            self.drop_shadows_while(climb, class, |_| true);
        }
    }

    /// Unmaps shadows that blocks of `class` have left and that are out of use, the oldest first,
    /// while `is_wanted` returns true. Those in use are skipped, and come again in the next round.
    fn drop_shadows_while(
        &self,
        climb: &Climb<'_>,
        class: SizeClass,
        is_wanted: impl Fn(&ExtentTable) -> bool,
    ) {
        let (mut in_use, mut has_begun) = (0, false);
        while in_use < MOST_PASSED_OVER {
            let mut extents = self.store.extents();
            if !is_wanted(&extents) || climb.device.may_capture() {
                break;
            }
            let oldest = extents.next_of_round(class).or_else(|| {
                if std::mem::replace(&mut has_begun, true) {
                    return None;
                }
                extents.begin_round(class);
                extents.next_of_round(class)
            });
            drop(extents);
            let Some((id, view)) = oldest else { break };
            if !self.drop_shadow(climb.device, id, view) {
                in_use += 1;
            }
        }
    }

    /// Unmaps a shadow if the work queued through it is complete; returns true if it did. If not,
    /// asks its stream for an event for the next time, unless there is already one to wait for.
    fn drop_shadow(&self, device: DeviceHeap<'_>, id: ExtentId, view: View) -> bool {
        let Some(lane) = device.heap.lanes.get(view.lane) else { return false };
        {
            let mut state = lane.lock();
            if !state.fence.is_idle(view.left_epoch) {
                state.poll_fence(&device.contexts);
            }
        }
        // An extent without a home is being moved, and may have to return to this view.
        let is_gone = self.unmap_shadow(device, id, view, |extent| extent.home.is_some());
        if !is_gone && lane.lock().fence.readiness(view.left_epoch) == Readiness::NotYet {
            lane.want_fence(NO_REQUEST);
        }
        is_gone
    }

    /// Unmaps every view of an extent that has no home; returns true if all are gone.
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
            // Another thread may be unmapping one of them.
            && !self.store.extents().has_views(id)
    }

    /// Unmaps a shadow if `may_go` returns true for its extent and the work queued through it is
    /// known to be complete; returns true if it did.
    fn unmap_shadow(
        &self,
        device: DeviceHeap<'_>,
        id: ExtentId,
        view: View,
        may_go: impl Fn(&Extent) -> bool,
    ) -> bool {
        self.try_unmap_shadow(device, id, view, may_go).is_ok()
    }

    /// The same, but returns why it did not.
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
                // Meanwhile it may have been a home again, or be another extent's shadow.
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

    /// Releases an extent that never had a home; if the driver keeps a view of it, it rests.
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
