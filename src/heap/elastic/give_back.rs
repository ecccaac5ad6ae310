//! Extents and addresses back to the driver.
//!
//! An extent whose bytes are all free goes back when every view of it can be unmapped: when
//! the work that was queued on the lane of each view, until blocks last lay there, is known
//! to be complete. Nothing here waits; callers that may wait do so before.

use super::super::Heap;
use super::super::device::DeviceHeap;
use super::super::ladder::Request;
use super::super::lane::{Lane, NO_REQUEST};
use crate::base::lock::assert_none_held;
use crate::config::LogLevel;
use crate::memory::{Extent, ExtentId, Extents, Pages, State, View};
use crate::order::Readiness;

/// Shadows are remembered up to this many times the memory that is held …
const MOST_SHADOW_SHARE: u64 = 16;
/// … and up to this many views for each extent.
const MOST_VIEWS_PER_EXTENT: usize = 4;
/// So many views more are kept in any case.
const LEAST_VIEWS: usize = 64;

/// So many shadows in use are passed over in one search for those that can go.
const MOST_PASSED_OVER: usize = 64;

/// Why a shadow was not unmapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    /// Work may still use it, or another thread is unmapping it.
    InUse,
    /// The driver refused.
    Driver(crate::driver::DriverError),
}

impl Heap {
    /// Gives the extent at home at `address` back if its bytes are all free and nothing may
    /// still use them; says how many bytes went back.
    pub(in super::super) fn release_extent(
        &self,
        device: &DeviceHeap,
        pages: &Pages,
        lane: &Lane,
        id: ExtentId,
        address: u64,
    ) -> u64 {
        let (bytes, epoch) = {
            let mut state = lane.lock();
            let mut extents = pages.extents();
            let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
            let home = extents.get(id).and_then(|extent| extent.home);
            let is_home =
                home.is_some_and(|home| (home.lane, home.address) == (lane.index, address));
            let around = state
                .free_block_around(address, bytes)
                .filter(|&slot| is_home && state.fence.is_idle(state.blocks.get(slot).freed_epoch));
            let Some(slot) = around else { return 0 };
            (bytes, lane.detach(&mut state, &mut extents, id, address, slot))
        };
        if self.unmap_all(pages, id) && self.destroy(device, pages, id) {
            return bytes;
        }
        // What has a view to return to is as it was; the rest waits for the next need.
        let mut state = lane.lock();
        let mut extents = pages.extents();
        if let Some(slot) = state.shadow_of(&extents, id, address) {
            lane.adopt(&mut state, &mut extents, id, slot, epoch, &device.supply);
        } else if extents.get(id).is_some() && !extents.resting().contains(&id) {
            extents.rest(id);
        }
        0
    }

    /// Gives the extents at rest back to the driver.
    pub(in super::super) fn release_resting(&self, device: &DeviceHeap, pages: &Pages) -> u64 {
        let resting: Vec<ExtentId> = pages.extents().resting().to_vec();
        let mut released_bytes = 0;
        for id in resting {
            let bytes = {
                let mut extents = pages.extents();
                if !extents.wake(id) {
                    continue;
                }
                extents.get(id).map_or(0, |extent| extent.bytes)
            };
            if !self.unmap_all(pages, id) {
                pages.extents().rest(id);
            } else if self.destroy(device, pages, id) {
                released_bytes += bytes;
            }
        }
        released_bytes
    }

    /// Gives the areas of all lanes back in which nothing is mapped.
    pub(in super::super) fn release_bare_areas(&self, device: &DeviceHeap, pages: &Pages) {
        for lane in self.lanes.of(device.ordinal) {
            let bare = lane.lock().remove_bare_areas();
            for area in bare {
                if pages.unreserve(area.address, area.bytes).is_err() {
                    lane.lock().add_area(area);
                }
            }
        }
    }

    /// Unmaps the oldest shadows while there are too many, as far as they are out of use. Those of
    /// a stream that gives no event any more would stay for ever: where there are twice too many,
    /// the device is waited for.
    pub(super) fn drop_excess_shadows(&self, request: &Request<'_>, pages: &Pages) {
        let held_bytes = request.device.supply.reserved_bytes();
        let is_excess = |extents: &Extents, times: u64| {
            let most_views = MOST_VIEWS_PER_EXTENT * extents.count() + LEAST_VIEWS;
            extents.shadow_bytes() > times * MOST_SHADOW_SHARE * held_bytes
                || extents.view_count() > times as usize * most_views
        };
        self.drop_shadows_while(request, pages, |extents| is_excess(extents, 1));
        let is_far_too_much = is_excess(&pages.extents(), 2);
        if is_far_too_much && self.wait_for_device(request.device) {
            self.drop_shadows_while(request, pages, |extents| is_excess(extents, 1));
        }
    }

    /// Unmaps shadows, the oldest first, while `is_wanted` and as far as they are out of use. Those
    /// that are not are passed over, and looked at last the next time.
    pub(super) fn drop_shadows_while(
        &self,
        request: &Request<'_>,
        pages: &Pages,
        is_wanted: impl Fn(&Extents) -> bool,
    ) {
        let mut in_use = Vec::new();
        while in_use.len() < MOST_PASSED_OVER {
            let oldest = {
                let mut extents = pages.extents();
                match is_wanted(&extents) && !self.may_capture(request.device) {
                    true => extents.pop_oldest_shadow(),
                    false => None,
                }
            };
            let Some((id, view)) = oldest else { break };
            if !self.drop_shadow(request.device, pages, id, view) {
                in_use.push((id, view));
            }
        }
        let mut extents = pages.extents();
        in_use.into_iter().for_each(|(id, view)| extents.put_back_shadow(id, view));
    }

    /// Unmaps a shadow if the work queued through it is complete; says whether it did. If not, its
    /// stream is to give an event for the next time, unless there is one to wait for.
    fn drop_shadow(&self, device: &DeviceHeap, pages: &Pages, id: ExtentId, view: View) -> bool {
        let Some(lane) = self.lanes.get(view.lane) else { return false };
        {
            let mut state = lane.lock();
            if !state.fence.is_idle(view.left_epoch) {
                state.poll_fence(&device.contexts);
            }
        }
        // A view that an extent on its way has just left may be what it has to return to.
        let is_gone = self.unmap_shadow(pages, id, view, |extent| extent.home.is_some());
        if !is_gone && lane.lock().fence.readiness(view.left_epoch) == Readiness::NotYet {
            lane.want_fence(NO_REQUEST);
        }
        is_gone
    }

    /// Unmaps every view of an extent that is at home nowhere; says whether all are gone.
    fn unmap_all(&self, pages: &Pages, id: ExtentId) -> bool {
        let views = pages.extents().get(id).map(|extent| extent.shadows.clone());
        let views = views.unwrap_or_default();
        let is_idle = |view: &View| {
            self.lanes.get(view.lane).is_some_and(|lane| lane.lock().fence.is_idle(view.left_epoch))
        };
        views.iter().all(is_idle)
            && views.iter().all(|view| self.unmap_shadow(pages, id, *view, |_| true))
            // Another thread may be about one of them.
            && !pages.extents().has_views(id)
    }

    /// Unmaps a shadow of an extent of which `may_go` holds, if the work queued through it is
    /// known to be complete.
    fn unmap_shadow(
        &self,
        pages: &Pages,
        id: ExtentId,
        view: View,
        may_go: impl Fn(&Extent) -> bool,
    ) -> bool {
        self.try_unmap_shadow(pages, id, view, may_go).is_ok()
    }

    /// The same, but it says why not.
    pub(super) fn try_unmap_shadow(
        &self,
        pages: &Pages,
        id: ExtentId,
        view: View,
        may_go: impl Fn(&Extent) -> bool,
    ) -> Result<(), Kept> {
        let lane = self.lanes.get(view.lane).ok_or(Kept::InUse)?;
        let claimed = {
            let mut state = lane.lock();
            let may_go = {
                let extents = pages.extents();
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
        let unmapped = self.outside_captures(lane.device, || pages.unmap(id, view.address));
        let mut state = lane.lock();
        match unmapped {
            Ok(()) => state.make_bare(slot),
            Err(_) => state.blocks.turn(slot, State::Shadow),
        }
        unmapped.map_err(Kept::Driver)
    }

    /// Gives up an extent that was never at home; if the driver keeps a view of it, it rests.
    pub(super) fn discard(&self, device: &DeviceHeap, pages: &Pages, id: ExtentId) {
        if self.unmap_all(pages, id) {
            self.destroy(device, pages, id);
        } else {
            pages.extents().rest(id);
        }
    }

    /// Releases an extent that has no view; says whether the driver took it.
    pub(super) fn destroy(&self, device: &DeviceHeap, pages: &Pages, id: ExtentId) -> bool {
        let destroyed = pages.destroy(&device.supply, id);
        if let Err(error) = destroyed
            && !error.is_shutdown()
        {
            let message = format_args!("device {}: {error}; the memory is kept", device.ordinal);
            self.log.write(LogLevel::Error, &message);
        }
        destroyed.is_ok()
    }
}
